from .networks import Network as Network
from .networks.loading import load_network as load_network
from .sampling import Schedule as Schedule
from .settings import RenderSettings as RenderSettings
from .settings import open_renderer as open_renderer
