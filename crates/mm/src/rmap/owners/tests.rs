mod golden;
mod loom;
mod small_world;
