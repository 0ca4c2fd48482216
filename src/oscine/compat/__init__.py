"""What other projects' programs import: the documented callables of the families and vLLM's processors, thin over
`families`. They stay importable at their documented places inside `families` too."""
