mod twin;
