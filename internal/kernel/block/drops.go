package block

// The drops that the kernel programs count, with the names that users see.

var diskDropNames = map[diskDiskDrop]string{
	diskDiskDropDROP_DISK:         "disks",
	diskDiskDropDROP_DISK_REQUEST: "disk_requests",
	diskDiskDropDROP_DISK_SYNC:    "disk_syncs",
}

var filesDropNames = map[filesFilesDrop]string{
	filesFilesDropDROP_FILES_THREAD: "file_threads",
}
