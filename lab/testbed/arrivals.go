package testbed

import (
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Arrivals counts numbered datagrams in the kernel when they arrive at a host, and drops them
// there, so that thousands of receivers cost little more than the packets themselves. It is safe
// for concurrent use.
type Arrivals struct {
	flows   *ebpf.Map
	program *ebpf.Program
	hook    link.Link
}

// PortPair identifies a flow to a host by its ports.
type PortPair struct{ From, To uint16 }

func (f PortPair) key() uint32 { return uint32(f.From)<<16 | uint32(f.To) }

// Arrived holds the counters of one flow.
type Arrived struct {
	Packets uint64
	// First and Last are the times of the first and the last arrival, as Uptime returns them.
	First, Last time.Duration
	// Number is the highest number that has arrived.
	Number uint64
	// Lost counts numbers that were left out, and Doubled those that arrived again or late.
	Lost, Doubled uint64
}

// maxFlows bounds the flows that are counted at one host.
const maxFlows = 1 << 16

// CountArrivals starts counting at an interface of a host.
func CountArrivals(host Inside, name string) (a *Arrivals, err error) {
	a = &Arrivals{}
	defer func() {
		if err != nil {
			err = fmt.Errorf("count arrivals at %s: %w", name, err)
			a.Close()
		}
	}()
	a.flows, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 48, MaxEntries: maxFlows})
	if err != nil {
		return nil, err
	}
	a.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: countingProgram(a.flows)})
	if err != nil {
		return nil, err
	}
	err = host.Do(func() error {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		a.hook, err = link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: a.program, Attach: ebpf.AttachTCXIngress})
		return err
	})
	return a, err
}

// Expect starts or restarts the counting of a flow. Other flows pass uncounted.
func (a *Arrivals) Expect(f PortPair) error {
	if err := a.flows.Put(f.key(), Arrived{}); err != nil {
		return fmt.Errorf("expect packets from port %d to port %d: %w", f.From, f.To, err)
	}
	return nil
}

// Of returns the counters of an expected flow.
func (a *Arrivals) Of(f PortPair) (got Arrived, err error) {
	if err := a.flows.Lookup(f.key(), &got); err != nil {
		return got, fmt.Errorf("packets from port %d to port %d: %w", f.From, f.To, err)
	}
	return got, nil
}

// Close stops the counting.
func (a *Arrivals) Close() {
	if a.hook != nil {
		_ = a.hook.Close() // The kernel removes the hook with its last user in any case.
	}
	if a.program != nil {
		_ = a.program.Close()
	}
	if a.flows != nil {
		_ = a.flows.Close()
	}
}

// Uptime returns the time of the clock of arrivals (CLOCK_MONOTONIC).
func Uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // Linux always has this clock.
	return time.Duration(t.Nano())
}
