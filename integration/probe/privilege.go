package main

import (
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func nice([]string) (string, error) {
	return "", unix.Setpriority(unix.PRIO_PROCESS, 0, -5)
}

func realtime([]string) (string, error) {
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	runtime.LockOSThread()
	return "", unix.SchedSetAttr(0, attr, 0)
}

func ioprioRealtime([]string) (string, error) {
	return "", raw(unix.SYS_IOPRIO_SET, 1, 0, 1<<13) // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_RT
}

// mbind binds a page to the first node of memory.
func mbind([]string) (string, error) {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return "", err
	}
	nodes := uint64(1)
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&b[0])), 4096, 2, uintptr(unsafe.Pointer(&nodes)), 64, 0) // MPOL_BIND
	if errno != 0 {
		return "", errno
	}
	return "", nil
}

// clockSettime and adjtime ask for what is refused before it is looked at: no clock changes.
func clockSettime([]string) (string, error) { return "", raw(unix.SYS_CLOCK_SETTIME, 0, 0, 0) }
func adjtime([]string) (string, error)      { return "", raw(unix.SYS_ADJTIMEX, 0, 0, 0) }

// sendDescriptors sends so many descriptors to a socket.
func sendDescriptors(args []string) (string, error) {
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return "", err
	}
	defer conn.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	fds := make([]int, number(args[1]))
	for i := range fds {
		fds[i] = int(null.Fd())
	}
	_, _, err = conn.(*net.UnixConn).WriteMsgUnix([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), unix.UnixRights(fds...), nil)
	return "", err
}

// takeDescriptors takes what is sent to a socket, with all that comes along, and keeps it: what a receiver does that asks for more than bytes.
func takeDescriptors(args []string) (string, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: args[0], Net: "unix"})
	if err != nil {
		return "", err
	}
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return "", err
		}
		if _, _, _, _, err := conn.ReadMsgUnix(make([]byte, 4096), make([]byte, 4096)); err != nil {
			return "", err
		}
		conn.Close()
	}
}
