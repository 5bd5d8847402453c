package outsight

import (
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

// Numbers that package syscall does not have.
const (
	addSeals = 1033
	// seals are F_SEAL_SEAL, F_SEAL_SHRINK and F_SEAL_GROW.
	seals            = 7
	prSetName        = 15
	prGetName        = 16
	cloexecAndSealed = 3 // MFD_CLOEXEC | MFD_ALLOW_SEALING
)

// memfdCreate is the number of the system call; 0 where it is not known.
func memfdCreate() uintptr {
	switch runtime.GOARCH {
	case "amd64":
		return 319
	case "arm64", "riscv64", "loong64":
		return 279
	case "ppc64le":
		return 360
	}
	return 0
}

// mapFile makes a memory file of a sealed size and maps it; nil where that is not possible. Its numbers are little-endian.
func mapFile(bytes int) (data []byte, fd int) {
	number := memfdCreate()
	if number == 0 {
		return nil, -1
	}
	name := append([]byte("outsight-metrics"), 0)
	made, _, failed := syscall.Syscall(number, uintptr(unsafe.Pointer(&name[0])), cloexecAndSealed, 0)
	if failed != 0 {
		return nil, -1
	}
	fd = int(made)
	err := syscall.Ftruncate(fd, int64(bytes))
	if err == nil {
		_, _, failed = syscall.Syscall(syscall.SYS_FCNTL, made, addSeals, seals)
		if failed != 0 {
			err = failed
		}
	}
	if err == nil {
		data, err = syscall.Mmap(fd, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, -1
	}
	return data, fd
}

// announce tells the host that the file is there: Outsight looks at the names that threads give themselves. The thread has
// its own name again at once.
func announce(fd int) {
	if fd < 0 {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before [16]byte
	name := append([]byte("outsight:"+strconv.Itoa(fd)), 0)
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, prGetName, uintptr(unsafe.Pointer(&before[0])), 0); failed != 0 {
		return
	}
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&name[0])), 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&before[0])), 0)
}
