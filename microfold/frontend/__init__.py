from microfold.frontend.schema_package import import_on_demand

import_on_demand()
