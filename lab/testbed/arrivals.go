package testbed

import (
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Arrivals counts numbered datagrams where they arrive at a host, in the kernel, and drops
// them there: so thousands of receivers cost little more than the packets themselves. It is
// safe for concurrent use.
type Arrivals struct {
	flows   *ebpf.Map
	program *ebpf.Program
	hook    link.Link
}

// PortPair is a flow to a host, by its ports.
type PortPair struct{ From, To uint16 }

func (f PortPair) key() uint32 { return uint32(f.From)<<16 | uint32(f.To) }

// Arrived is what has come of one flow.
type Arrived struct {
	Packets uint64
	// First and Last are when the first and the last came, as Uptime has it.
	First, Last time.Duration
	// Number is that of the last one that was newer than those before.
	Number uint64
	// Lost counts numbers that were left out, Doubled those that came again, or late.
	Lost, Doubled uint64
}

// maxFlows bounds the flows that are counted at one host.
const maxFlows = 1 << 16

// CountArrivals begins to count at an interface of a host.
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

// Expect begins to count a flow anew; what is of other flows passes.
func (a *Arrivals) Expect(f PortPair) error {
	if err := a.flows.Put(f.key(), Arrived{}); err != nil {
		return fmt.Errorf("expect packets from port %d to port %d: %w", f.From, f.To, err)
	}
	return nil
}

// Of is what has come of a flow that is expected.
func (a *Arrivals) Of(f PortPair) (got Arrived, err error) {
	if err := a.flows.Lookup(f.key(), &got); err != nil {
		return got, fmt.Errorf("packets from port %d to port %d: %w", f.From, f.To, err)
	}
	return got, nil
}

// Close ends the counting.
func (a *Arrivals) Close() {
	if a.hook != nil {
		_ = a.hook.Close() // the kernel takes it away with its last user in any case
	}
	if a.program != nil {
		_ = a.program.Close()
	}
	if a.flows != nil {
		_ = a.flows.Close()
	}
}

// Uptime is the clock by which arrivals are noted (CLOCK_MONOTONIC).
func Uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // Linux has it
	return time.Duration(t.Nano())
}
