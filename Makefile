# make demo   sets everything up and runs the whole job on the embedded sample; ends with the report's path
# make test   sets everything up, runs the examples in docstrings and all tests (SLOW=1: those that take minutes or a GPU
#             as well; ARGS=tests/edits: only these), and prints the coverage
# make setup-integrations   installs what only the tests of the integrations need; without it those tests are skipped
# make lint   ruff, mypy and import-linter
# make docs   builds the documentation into site/; a broken link is an error
# make pictures   makes the pictures of README and docs anew (needs chromium; PETS=FOLDER IMAGENETX=FOLDER: all of them)
# make notebooks  runs the notebooks of docs/notebooks and stores their outputs
# make fuzz   a million damaged files for every reader (ARGS="--inputs 1000 coco": fewer, only these)
# make bench  every benchmark that needs no GPU and no environment of its own; each prints its ratio
# make bench-quick   a table of ratios in under five minutes on two cores
# make lock   compiles the pinned requirements anew
# make notices   writes THIRD_PARTY_NOTICES.md anew
# make fills   makes the stored fills of the sample anew, after a change of its photographs, masks or the network
# make release-check   builds sdist and wheel and uses them from a local index in empty environments: demo, README's
#             commands, the Action's steps, lowest versions, sizes (ONLY=README,sizes: only these steps)

PYTHON ?= python3
VENV := .venv
UV := $(VENV)/bin/uv
INSTALL := $(UV) pip install --quiet --python $(VENV)/bin/python
COMPILE := $(UV) pip compile --quiet pyproject.toml --python-version 3.11 --no-emit-index-url --no-annotate --no-header
DEVELOPMENT := app coco dev diffusers editors masks models studies
EXTRAS := datasets fiftyone litert maite mlflow openvino ray s3 wandb
# The tests start hundreds of processes, so what Python compiles is kept, whatever the shell says, and not among the
# sources. A file's tests stay in one process, which makes what they share once.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/bytecode OMP_NUM_THREADS=1 \
	$(VENV)/bin/python -m pytest -rfEs -n 2 --dist loadfile --cov --cov-report=
DEMO ?= demo

# At least this share of the lines, in %, must be covered by the whole suite.
COVERED := 80

.PHONY: demo test lint docs bench bench-quick pictures notebooks fuzz lock notices fills release-check setup setup-dev setup-integrations clean

setup: $(VENV)/ready
setup-dev: $(VENV)/ready-dev
setup-integrations: $(VENV)/ready-integrations

$(UV):
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check uv==0.13.7

# Without a GPU: torch's CPU wheels, if PyTorch's own index can be reached; else those of the registry, with CUDA.
$(VENV)/ready: requirements.txt pyproject.toml | $(UV)
	(! command -v nvidia-smi && $(INSTALL) --torch-backend=cpu -r requirements.txt) 2>/dev/null || $(INSTALL) -r requirements.txt
	$(INSTALL) --no-deps -e .
	touch $@

# The ImageNet-X annotations are CC BY-NC: a group of their own, never a dependency. Without them, and without npm's
# axe-core, the tests that need them skip and say so.
$(VENV)/ready-dev: requirements-dev.txt requirements-imagenetx.txt $(VENV)/ready
	$(INSTALL) -r requirements-dev.txt
	-$(INSTALL) --no-deps -r requirements-imagenetx.txt
	-command -v npm >/dev/null && npm install --silent --no-save --prefix $(VENV)/axe axe-core@4.14.0
	touch $@

# Without dependencies, since some of these packages forbid versions of ours that they work with (see `lock`).
$(VENV)/ready-integrations: requirements-integrations.txt requirements-wheels.txt $(VENV)/ready-dev
	$(INSTALL) --no-deps -r requirements-integrations.txt -r requirements-wheels.txt
	touch $@

$(VENV)/ready-docs: requirements-docs.txt $(VENV)/ready
	$(INSTALL) -r requirements-docs.txt
	touch $@

demo: $(VENV)/ready
	$(VENV)/bin/unswayed demo -o $(DEMO)

test: $(VENV)/ready-dev
	rm -f .coverage
	$(if $(ARGS),,$(PYTEST) --doctest-modules src/unswayed)
	$(PYTEST) --cov-append $(if $(SLOW),,-m "not slow and not gpu") $(ARGS)
	@echo "coverage: $$($(VENV)/bin/coverage report --format=total) % of the lines of src/unswayed"
	$(if $(ARGS),,@$(VENV)/bin/coverage report --format=total --fail-under=$(COVERED) >/dev/null || (echo "less than $(COVERED) % are covered" >&2; exit 1))

lint: $(VENV)/ready-dev
	$(VENV)/bin/ruff check --no-cache .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

docs: $(VENV)/ready-docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

# PETS: Oxford-IIIT Pet in torchvision's layout; IMAGENETX: the published DINO.csv and ResNet50.csv of ImageNet-X. Their
# pictures are made only where these folders are given. The same machine makes the same bytes every time.
PICTURES = $(VENV)/bin/python docs/pictures/make_
pictures: $(VENV)/ready-dev demo
	$(PICTURES)readme.py $(DEMO) dragon lite-0
	for name in app benchmark edits python rendering review sources time transforms weather; do $(PICTURES)$$name.py || exit 1; done
	$(PICTURES)sensitivity.py $(DEMO)/sensitivity
	$(if $(PETS),$(PICTURES)masks.py $(PETS) && $(PICTURES)report.py $(PETS) $(DEMO)/pets,@echo "not made without PETS: report, film, masks")
	$(if $(PETS),$(PICTURES)film.py $(DEMO)/pets/report.html)
	$(if $(IMAGENETX),$(PICTURES)factors.py $(IMAGENETX),@echo "not made without IMAGENETX: factor-profile.png")

notebooks: $(VENV)/ready-dev
	$(VENV)/bin/python docs/notebooks/execute.py docs/notebooks/*.ipynb

# Without those that need a GPU, arguments or hours.
NOT_BY_DEFAULT = adm_speed quick contract equivalence few_steps mask_fit mask_quality memory network_cost repair_pets \
	report_size to_tflite validity

bench: $(VENV)/ready-dev
	@for file in $(filter-out $(NOT_BY_DEFAULT:%=benchmarks/%.py), $(wildcard benchmarks/*.py)); do echo "== $$file"; $(VENV)/bin/python $$file || exit 1; done

bench-quick: $(VENV)/ready-dev
	$(VENV)/bin/python benchmarks/quick.py

fuzz: $(VENV)/ready-dev
	$(VENV)/bin/python tests/fuzz/fuzz_readers.py $(ARGS)

# One set of versions: those of the development environment, which all others are held to. The CUDA packages are not
# pinned: torch itself names their versions, and its CPU wheels need none.
lock: | $(UV)
	$(COMPILE) $(DEVELOPMENT:%=--extra %) -o requirements-dev.txt
	$(COMPILE) --extra studies --constraint requirements-dev.txt -o requirements.txt
	$(COMPILE) --extra docs --constraint requirements-dev.txt -o requirements-docs.txt
	$(COMPILE) $(EXTRAS:%=--extra %) --group integrations --constraint requirements-dev.txt \
		--override requirements-overrides.txt -o requirements-integrations.txt
	sed -i.bak -E '/^(cuda-|nvidia-|triton=)/d' requirements*.txt && rm requirements*.txt.bak

notices: $(VENV)/ready
	$(VENV)/bin/python tools/notices.py

fills: $(VENV)/ready
	$(VENV)/bin/python tools/sample_fills.py

release-check: $(VENV)/ready
	$(VENV)/bin/python tools/release_check.py --only "$(ONLY)"

clean:
	rm -rf $(VENV) $(DEMO) site .coverage
