package notify

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is a struct seccomp_notif, with its struct seccomp_data.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response is a struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	errno int32 // negative
	flags uint32
}

// fits reports whether the kernel's structs are no longer than ours. They may grow, and then
// it would write behind them.
func fits() error {
	var sizes struct{ notification, response, data uint16 }
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&sizes))); e != 0 {
		return e
	}
	if uintptr(sizes.notification) > unsafe.Sizeof(notification{}) || uintptr(sizes.response) > unsafe.Sizeof(response{}) {
		return errors.New("the kernel's notifications are longer than is known here")
	}
	return nil
}

// receive takes a notification, or says ENOENT when its caller has gone.
func receive(fd uintptr) (n notification, err error) {
	err = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
	return n, err
}

func respond(fd uintptr, r response) error {
	return ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

func valid(fd uintptr, id uint64) error {
	return ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id))
}

func ioctl(fd, request uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}
