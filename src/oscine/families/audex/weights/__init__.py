"""From an Audex folder to a model with all its parts."""
