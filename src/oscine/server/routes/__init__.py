"""Routes by what they serve; each module makes a router for one app's state."""
