"""Every kind of picture that people have becomes the same array; what is no picture says what it is."""

import io
import zipfile

import cv2
import numpy as np
import pytest
from hostile_pictures import scans
from PIL import Image

from unswayed.errors import BadPicture
from unswayed.scene import Scene
from unswayed.sources import open_source
from unswayed.sources.pictures import picture_of, read_cutout, read_mask, read_picture, shrunk


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def colors():
    """(24, 32, 3) uint8, different at every pixel and in every quarter."""
    rows, columns = np.mgrid[:24, :32]
    return np.stack([rows * 10, columns * 8, (rows + columns) * 4], axis=-1).astype(np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_lossless_files_come_back_exactly(colors, kind):
    options = {"lossless": True} if kind == "WEBP" else {}
    assert (read_picture(encoded(Image.fromarray(colors), kind, **options)) == colors).all()


def test_a_path_a_text_path_bytes_and_an_open_file_are_all_read(colors, tmp_path):
    path = tmp_path / "one.png"
    path.write_bytes(encoded(Image.fromarray(colors)))
    with path.open("rb") as file:
        answers = [read_picture(given) for given in (path, str(path), path.read_bytes(), file)]
    assert all((answer == colors).all() for answer in answers)


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"progressive": True}, {"quality": 30}])
def test_the_quick_way_to_read_a_jpeg_gives_the_pixels_of_pillow(options):
    photograph = Image.fromarray(open_source("sample")["dog"].image)
    data = encoded(photograph, "JPEG", **options)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert (read_picture(data) == expected).all()
    assert (read_picture(data + b"junk behind the picture") == expected).all()


def test_the_quick_way_to_read_a_png_gives_the_pixels_of_pillow_also_of_damaged_files():
    photograph = Image.fromarray(open_source("sample")["dog"].image).resize((64, 48))
    rng = np.random.default_rng(0)
    for image, options in ((photograph, {}), (photograph.convert("L"), {}), (photograph, {"transparency": (1, 2, 3)})):
        data = encoded(image, **options)
        expected = np.asarray(image.convert("RGB"))
        assert (read_picture(data) == expected).all()
        for place in rng.integers(0, len(data), 150):
            damaged = bytearray(data)
            damaged[place] ^= 1 << int(rng.integers(8))
            try:
                pixels = read_picture(bytes(damaged))
            except BadPicture:
                continue
            assert (pixels == np.asarray(Image.open(io.BytesIO(damaged)).convert("RGB"))).all()
        for end in rng.integers(8, len(data) // 2, 20):
            with pytest.raises(BadPicture):
                read_picture(data[:end])


def test_the_quick_way_to_read_a_mask_gives_the_shares_of_pillow():
    levels = np.random.default_rng(0).integers(0, 256, (40, 30), dtype=np.uint8)
    shares = read_mask(encoded(Image.fromarray(levels)))
    assert shares.dtype == np.float32
    assert (shares == levels.astype(np.float32) / 255).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_picture_is_turned_as_its_exif_says(colors, orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(colors), kind, exif=exif)
    stored = Image.open(io.BytesIO(data))
    turned = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    expected = stored.transpose(turned[orientation]) if orientation in turned else stored
    answer = read_picture(data)
    assert (answer == np.asarray(expected.convert("RGB"))).all()
    assert answer.flags["C_CONTIGUOUS"]


def test_a_picture_with_broken_exif_is_read_as_it_lies(colors):
    data = encoded(Image.fromarray(colors), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\xff\xff")
    assert read_picture(data).shape == colors.shape


def test_grayscale_and_black_and_white_spread_to_rgb(colors):
    gray = Image.fromarray(colors).convert("L")
    answer = read_picture(encoded(gray))
    assert (answer == np.asarray(gray)[..., None]).all()
    assert read_picture(encoded(gray, "JPEG")).shape == colors.shape
    assert set(np.unique(read_picture(encoded(gray.convert("1"))))) == {0, 255}


def test_palette_files_have_the_colors_of_their_palette(colors):
    palette = Image.fromarray(colors).quantize(16)
    for kind in ("PNG", "GIF"):
        assert (read_picture(encoded(palette, kind)) == np.asarray(palette.convert("RGB"))).all()


def test_cmyk_is_converted_and_not_inverted():
    white, cyan = Image.new("CMYK", (8, 8), (0, 0, 0, 0)), Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    for kind in ("JPEG", "TIFF"):
        assert read_picture(encoded(white, kind)).min() > 250
        red, green, blue = read_picture(encoded(cyan, kind)).reshape(-1, 3).mean(axis=0)
        assert red < 10
        assert min(green, blue) > 245


def test_sixteen_bits_are_reduced_to_eight():
    levels = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    for kind in ("PNG", "TIFF"):
        answer = read_picture(encoded(Image.fromarray(levels), kind))
        assert (answer == (levels // 257)[..., None]).all()
    in_color = np.stack([levels, levels[::-1], levels.T], axis=-1)
    answer = read_picture(cv2.imencode(".png", in_color[..., ::-1])[1].tobytes())
    assert (answer == in_color // 257).all()


def test_sixteen_bit_tiff_in_color_is_read(tmp_path):
    levels = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    in_color = np.stack([levels, levels[::-1], levels.T], axis=-1)
    path = tmp_path / "deep.tiff"
    assert cv2.imwrite(str(path), in_color[..., ::-1])
    assert (read_picture(path) == in_color // 257).all()


def test_transparent_parts_lie_over_white(colors):
    alpha = np.zeros(colors.shape[:2], np.uint8)
    alpha[:12] = 255
    alpha[12:18] = 128
    answer = read_picture(encoded(Image.fromarray(np.dstack([colors, alpha]))))
    assert (answer[:12] == colors[:12]).all()
    assert (answer[18:] == 255).all()
    expected = colors[12:18] * (128 / 255) + 255 * (127 / 255)
    assert np.abs(answer[12:18] - expected).max() <= 1
    keyed = Image.fromarray(colors).quantize(16)
    assert (read_picture(encoded(keyed, "PNG", transparency=keyed.getpixel((0, 0))))[0, 0] == 255).all()
    gray = Image.merge("LA", [Image.new("L", (4, 4), 7), Image.new("L", (4, 4), 0)])
    assert (read_picture(encoded(gray)) == 255).all()


def test_a_picture_of_one_pixel_is_a_picture():
    assert (read_picture(encoded(Image.new("RGB", (1, 1), (1, 2, 3)))) == [[[1, 2, 3]]]).all()


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (read_picture(data) == [255, 0, 0]).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"])
@pytest.mark.parametrize("share", [0.03, 0.5, 0.95])
def test_a_truncated_file_is_refused(kind, share):
    data = encoded(Image.fromarray(open_source("sample")["cat"].image), kind)
    with pytest.raises(BadPicture, match="cut off|damaged"):
        read_picture(data[: int(len(data) * share)])


def test_a_truncated_progressive_jpeg_is_refused():
    data = encoded(Image.fromarray(open_source("sample")["cat"].image), "JPEG", progressive=True)
    with pytest.raises(BadPicture, match="cut off"):
        read_picture(data[: len(data) * 2 // 3])


def zip_bytes():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "a")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"these are words", "not a picture but text"),
        (b"", "the file is empty"),
        (zip_bytes(), "not a picture but a ZIP archive"),
        (b"%PDF-1.7 \xff\xfe", "not a picture but a PDF document"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"  <html><body>404</body></html>", "not a picture but a web page"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (bytes(range(256)), "not a readable picture"),
    ],
)
def test_what_is_no_picture_says_what_it_is(tmp_path, data, reason):
    path = tmp_path / "photo.jpg"
    path.write_bytes(data)
    with pytest.raises(BadPicture, match=rf"photo\.jpg: .*{reason}"):
        read_picture(path)
    with pytest.raises(BadPicture, match=reason):
        read_mask(path)


def test_a_file_that_is_not_there_and_a_folder_are_named(tmp_path):
    with pytest.raises(BadPicture, match=r"gone\.jpg: the file does not exist"):
        read_picture(tmp_path / "gone.jpg")
    with pytest.raises(BadPicture, match="this is a folder"):
        read_picture(tmp_path)


def test_a_decompression_bomb_is_refused_before_it_is_unpacked():
    small = encoded(Image.new("1", (64, 64)))
    width = (20_000).to_bytes(4, "big")
    header = b"IHDR" + width + width + small[24:29]
    import zlib

    bomb = small[:12] + header + zlib.crc32(header).to_bytes(4, "big") + small[33:]
    with pytest.raises(BadPicture, match="too large"):
        read_picture(bomb)


def test_a_large_picture_below_the_limit_is_read_without_a_warning(recwarn):
    assert read_picture(encoded(Image.new("1", (12_000, 8_000)))).shape == (8000, 12000, 3)
    assert not recwarn.list


def test_numbers_of_unknown_range_are_refused():
    with pytest.raises(BadPicture, match="32-bit numbers"):
        read_picture(encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"))


def test_masks_are_shares_of_white(colors):
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert np.allclose(read_mask(encoded(Image.fromarray(levels))), levels / 255)
    assert np.allclose(read_mask(encoded(Image.fromarray(levels.astype(np.uint16) * 257))), levels / 255)
    assert read_mask(encoded(Image.fromarray(levels))).dtype == np.float32
    binary = (levels > 99).astype(np.uint8)
    for image in (Image.fromarray(binary), Image.fromarray(binary * 255), Image.fromarray(binary > 0)):
        assert (read_mask(encoded(image)) == binary).all()
    assert (read_mask(encoded(Image.fromarray(binary * 255).convert("RGB"))) == binary).all()


def test_a_mask_with_transparent_parts_is_its_alpha():
    alpha = np.zeros((4, 4), np.uint8)
    alpha[1:3, 1:3] = 255
    image = Image.fromarray(np.dstack([np.full((4, 4, 3), 9, np.uint8), alpha]))
    assert (read_mask(encoded(image)) == alpha / 255).all()


def test_a_cutout_keeps_its_colors_and_one_without_alpha_is_refused(colors):
    alpha = np.full(colors.shape[:2], 51, np.uint8)
    kept, share = read_cutout(encoded(Image.fromarray(np.dstack([colors, alpha]))))
    assert (kept == colors).all()
    assert np.allclose(share, 0.2)
    with pytest.raises(BadPicture, match="no transparent parts"):
        read_cutout(encoded(Image.fromarray(colors)))


def test_a_huge_scene_is_reduced_with_a_note():
    mask = np.zeros((100, 1000), np.float32)
    mask[20:80, 300:700] = 1
    scene = Scene("wide", np.zeros((100, 1000, 3), np.uint8), mask, parts={"part": mask})
    small = shrunk(scene, longest=500)
    assert small.mask.shape == small.image.shape[:2] == small.parts["part"].shape == (50, 500)
    assert small.pixel_rate == pytest.approx(scene.pixel_rate, abs=0.01)
    assert small.notes == ("reduced from 1000×100",)
    assert shrunk(scene) is scene


def test_an_array_in_0_to_1_cast_to_bytes_is_not_a_picture():
    with pytest.raises(BadPicture, match="the picture is black"):
        picture_of((np.full((4, 4, 3), 200) / 255).astype(np.uint8))


@pytest.mark.parametrize("bits", [8, 10, 12, 14])
def test_few_bits_stored_as_sixteen_are_refused(bits):
    levels = (np.arange(256, dtype=np.uint16) << (bits - 8)).reshape(16, 16)
    with pytest.raises(BadPicture, match=f"nearly black: its largest level is .*as of {bits}-bit data"):
        read_picture(encoded(Image.fromarray(levels)))


@pytest.mark.parametrize("ending", [".png", ".tiff"])
@pytest.mark.parametrize("bits", [10, 12])
def test_few_bits_of_color_stored_as_sixteen_are_refused_and_whole_ones_are_read(ending, bits):
    few = (np.arange(768, dtype=np.uint16) * (2**bits // 768)).reshape(16, 16, 3)
    with pytest.raises(BadPicture, match=f"nearly black: its largest level is .*as of {bits}-bit data"):
        read_picture(cv2.imencode(ending, few)[1].tobytes())
    whole = few << (16 - bits)
    assert (read_picture(cv2.imencode(ending, whole)[1].tobytes()) == (whole >> 8)[..., ::-1]).all()


def test_few_bits_of_a_transparent_cutout_stored_as_sixteen_are_refused():
    pixels = np.full((8, 8, 4), 4000, np.uint16)
    pixels[:4, :, 3] = 65535
    with pytest.raises(BadPicture, match="12-bit data"):
        read_cutout(cv2.imencode(".png", pixels)[1].tobytes())


def test_the_gray_border_of_a_trimap_is_divided_and_a_soft_rim_is_not():
    trimap = np.zeros((40, 40), np.uint8)
    trimap[8:32, 8:32] = 128
    trimap[16:24, 16:24] = 255
    mask = read_mask(encoded(Image.fromarray(trimap)))
    assert set(np.unique(mask)) == {0, 1}
    assert mask[20].sum() == pytest.approx(16, abs=2)
    rim = np.zeros((40, 40), np.uint8)
    rim[8:32, 8:32] = 128
    rim[9:31, 9:31] = 255
    assert (read_mask(encoded(Image.fromarray(rim))) == rim.astype(np.float32) / 255).all()


def test_a_jpeg_file_of_endless_scans_is_refused_and_what_follows_a_picture_does_not_count():
    """Before, 50,000 empty passes over a large picture took hours and could not be interrupted."""
    with pytest.raises(BadPicture, match="take too long to read"):
        read_picture(scans(64, 48, 101))
    assert read_picture(scans(64, 48, 20)).shape == (48, 64, 3)
    film = b"\xff\xda" * 500  # as a telephone puts it behind a photograph
    assert read_picture(encoded(Image.new("RGB", (32, 24)), "JPEG") + film).shape == (24, 32, 3)
