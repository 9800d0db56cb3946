"""Reports about builds: as JSON, as text and as an HTML page."""
