package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// spliceName is argv[0] of a process that StartSplice starts. Its arguments are the address at
// which it listens and the address that it dials.
const spliceName = "sluice-splice"

// A splice process is a copy of any program that uses this package, tests included. So it must be
// recognised before that program's main runs.
func init() {
	if len(os.Args) == 3 && os.Args[0] == spliceName {
		if err := relayOne(os.Args[1], os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// splicePipe is the capacity of a splice process's pipes, and the most that one of its calls moves.
const splicePipe = 1 << 20

// StartSplice runs the simplest relay that keeps payload in the kernel: it accepts one connection,
// dials the next address, and moves bytes by two blocking loops of splice(2), one in each
// direction. It does nothing else, so its CPU time is the least that a relay through the machine's
// TCP can cost. StartSplice returns when the relay listens.
func StartSplice(ctx context.Context, at Place, dir string, listen, next netip.AddrPort) (*Daemon, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	log := filepath.Join(dir, fmt.Sprintf("splice-%v-%d.log", listen.Addr(), listen.Port()))
	d, err := StartDaemon(ctx, at, log, "bash", "-c", `exec -a "$0" "$@"`, spliceName, self, listen.String(), next.String())
	if err != nil {
		return nil, err
	}
	if err := WaitListening(ctx, at, listen.Port()); err != nil {
		d.Stop()
		return nil, fmt.Errorf("splice loop at %v: %w: %s", listen, err, Tail(log, lastWords))
	}
	return d, nil
}

// relayOne relays one connection to its end.
func relayOne(listen, next string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	near, err := l.Accept()
	if err != nil {
		return fmt.Errorf("accept at %s: %w", listen, err)
	}
	l.Close()
	far, err := net.DialTimeout("tcp", next, 10*time.Second)
	if err != nil {
		return fmt.Errorf("dial %s: %w", next, err)
	}
	a, err := blocking(near)
	if err != nil {
		return err
	}
	b, err := blocking(far)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(4) // Each loop keeps a processor of the runtime, also while it waits.
	done := make(chan error)
	for _, way := range [][2]int{{a, b}, {b, a}} {
		go func() { done <- spliceLoop(way[0], way[1]) }()
	}
	return errors.Join(<-done, <-done)
}

// blocking returns a duplicate of a connection's descriptor, in blocking mode, and closes the
// connection.
func blocking(c net.Conn) (int, error) {
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer f.Close()
	return unix.Dup(int(f.Fd()))
}

// spliceLoop moves bytes to the end of the stream, and then passes the end on.
func spliceLoop(from, to int) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, splicePipe); err != nil {
		return fmt.Errorf("size of a pipe: %w", err)
	}
	for {
		n, err := spliceOnce(from, pipe[1], splicePipe)
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.Shutdown(to, unix.SHUT_WR)
		}
		for n > 0 {
			m, err := spliceOnce(pipe[0], to, n)
			if err != nil {
				return err
			}
			n -= m
		}
	}
}

// spliceOnce calls splice(2) without informing Go's scheduler, whose work for each call would be
// counted as well.
func spliceOnce(from, to, n int) (int, error) {
	for {
		moved, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_MOVE)
		switch e {
		case 0:
			return int(moved), nil
		case unix.EINTR:
			continue
		}
		return 0, fmt.Errorf("splice: %w", e)
	}
}
