"""The networks of AuK: the flow transformer, the encoder that conditions it, and what feeds them."""
