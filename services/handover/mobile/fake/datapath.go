package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// Datapath records its calls.
type Datapath struct {
	mu       sync.Mutex
	attached []datapath.Interface
	uses     []Use
	refuse   error
	traffic  datapath.Traffic
	fitted   int
	again    []string
	restored int
}

// Use is one call of Use.
type Use struct {
	Send    string
	Receive []string
}

// String returns "send<receive,receive".
func (u Use) String() string { return fmt.Sprintf("%s<%v", u.Send, u.Receive) }

// Attach records that an interface is attached.
func (d *Datapath) Attach(_ context.Context, i datapath.Interface) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached = append(slices.DeleteFunc(d.attached, func(o datapath.Interface) bool { return o.Name == i.Name }), i)
	return nil
}

// Restore records that it was called, and finds no differences.
func (d *Datapath) Restore(context.Context) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restored++
	return 0, nil
}

// Restored returns how often Restore was called.
func (d *Datapath) Restored() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.restored
}

// Detach records that an interface is not attached any more.
func (d *Datapath) Detach(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached = slices.DeleteFunc(d.attached, func(o datapath.Interface) bool { return o.Name == name })
	return nil
}

// Use records the interfaces in use. It returns an error if one is not attached.
func (d *Datapath) Use(_ context.Context, send string, receive []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return d.refuse
	}
	for _, name := range append([]string{send}, receive...) {
		if !slices.ContainsFunc(d.attached, func(i datapath.Interface) bool { return i.Name == name }) {
			return fmt.Errorf("%q: %w", name, datapath.ErrUnknownInterface)
		}
	}
	d.uses = append(d.uses, Use{send, slices.Clone(receive)})
	return nil
}

// Refuse makes Use return an error from now on; nil ends that.
func (d *Datapath) Refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = err
}

// Uses returns the successful calls of Use.
func (d *Datapath) Uses() []Use {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.uses)
}

// Attached returns the attached interfaces.
func (d *Datapath) Attached() []datapath.Interface {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.attached)
}

// FitMTU counts its calls.
func (d *Datapath) FitMTU(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fitted++
	return nil
}

// Fitted returns how often FitMTU was called.
func (d *Datapath) Fitted() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fitted
}

// Traffic returns the same counters for all interfaces.
func (d *Datapath) Traffic(string) (datapath.Traffic, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.traffic, nil
}

// Carry adds frames that the device has sent and heard to the counters.
func (d *Datapath) Carry(sent, heard uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.traffic.Sent += sent
	d.traffic.Heard += heard
}

// SendAgain records the interface by which it would send.
func (d *Datapath) SendAgain(time.Duration, openflow.MAC) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.again = append(d.again, d.uses[len(d.uses)-1].Send)
	return 0, nil
}

// SentAgain returns the interfaces by which SendAgain was called to send.
func (d *Datapath) SentAgain() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.again)
}

// Stats returns the interfaces of the last Use, without counters.
func (d *Datapath) Stats() (datapath.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s datapath.Stats
	if n := len(d.uses); n > 0 {
		s.Send, s.Receive = d.uses[n-1].Send, d.uses[n-1].Receive
	}
	return s, nil
}
