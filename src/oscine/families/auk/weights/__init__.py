"""From AuK's folders and files to filled modules, and what of them stays in memory."""
