"""Training of the small models behind the bundled default voice."""
