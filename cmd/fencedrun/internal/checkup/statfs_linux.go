package checkup

import "syscall"

// The magic numbers of statfs(2).
var kinds = map[uint32]fileSystem{
	0x6969:     {name: "NFS", kind: network},
	0x517b:     {name: "SMB", kind: network},
	0xff534d42: {name: "CIFS", kind: network},
	0xfe534d42: {name: "SMB2", kind: network},
	0x01021997: {name: "9P", kind: network},
	0x00c36400: {name: "Ceph", kind: network},
	0x5346414f: {name: "AFS", kind: network},
	0x0bd00bd0: {name: "Lustre", kind: network},
	0x47504653: {name: "GPFS", kind: network},
	0x01021994: {name: "tmpfs", kind: forgetful},
	0x858458f6: {name: "ramfs", kind: forgetful},
	0x794c7630: {name: "overlayfs", kind: forgetful},
	0x61756673: {name: "aufs", kind: forgetful},
	0x65735546: {name: "FUSE", kind: userSpace},
	0x786f4256: {name: "VirtualBox's shared folders", kind: userSpace},
}

// statfs asks by name, without opening the file.
func statfs(path string) (fileSystem, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return fileSystem{}, err
	}
	fs := kinds[uint32(st.Type)]
	const readOnly = 1 // ST_RDONLY
	fs.readOnly = st.Flags&readOnly != 0
	fs.free, fs.size = st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	return fs, nil
}
