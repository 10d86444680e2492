"""Reading and writing HloModuleProto and the messages that contain one."""
