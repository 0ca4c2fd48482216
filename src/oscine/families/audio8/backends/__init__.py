"""What runs a step of the language model: torch (`eager`) or compiled code (`native`), chosen at load."""
