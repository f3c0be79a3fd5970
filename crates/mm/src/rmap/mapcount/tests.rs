mod golden;
mod twin;
