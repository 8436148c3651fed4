"""Files shipped with the program: fonts, icons, themes, style sheets, chat templates."""
