package heartbeat

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// variable makes a program that imports this package the process that beats.
	variable = "SLUICE_HEARTBEAT"
	ready    = "beating"
	// interval is the time between two beats; shortest is the lateness that is told.
	interval = 2 * time.Millisecond
	shortest = 5 * time.Millisecond
)

func init() {
	if os.Getenv(variable) == "" {
		return
	}
	if err := beat(); err != nil {
		fmt.Fprintln(os.Stderr, "heartbeat:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beat keeps a thread on every core, and writes what each has missed, until standard input
// ends.
func beat() error {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	runtime.GOMAXPROCS(all.Count() + 1)
	var out sync.Mutex
	begun := make(chan error, all.Count())
	for core := range len(all) * 64 {
		if all.IsSet(core) {
			go func() { // ends with the process
				err := pin(core)
				begun <- err
				for err == nil {
					due := time.Now().Add(interval)
					err = unix.Nanosleep(&unix.Timespec{Nsec: int64(interval)}, nil)
					if late := time.Since(due); late >= shortest {
						out.Lock()
						fmt.Println(core, due.UnixNano(), late.Nanoseconds())
						out.Unlock()
					}
				}
			}()
		}
	}
	for range all.Count() {
		if err := <-begun; err != nil {
			return err
		}
	}
	fmt.Println(ready)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// pin keeps the calling goroutine on one core.
func pin(core int) error {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(core)
	return unix.SchedSetaffinity(0, &one)
}
