package domain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

const (
	edge    = "edge"
	overlap = 5 * time.Millisecond
)

// fakeDevice is a device in one domain, with the places where its packets go there.
type fakeDevice struct {
	Known
	key      string
	places   []string // edge, or names of neighbours
	before   []string
	prepared bool // only prepared: Cancel removes it
	via      string
}

// fakeHost is a domain without a network: it knows where packets would go.
type fakeHost struct {
	name string

	mu      sync.Mutex
	devices map[string]*fakeDevice
	taken   map[netip.Addr]bool
	fail    map[string]error
	used    map[string]bool // used evidence
	calls   []string
	resumed map[openflow.MAC]chan struct{}
}

func newFakeHost(name string) *fakeHost {
	return &fakeHost{
		name: name, devices: map[string]*fakeDevice{}, taken: map[netip.Addr]bool{}, fail: map[string]error{},
		used: map[string]bool{}, resumed: map[openflow.MAC]chan struct{}{},
	}
}

func (h *fakeHost) call(name, id string) error {
	h.calls = append(h.calls, name+" "+id)
	return h.fail[name]
}

// setFail makes calls of that name fail; nil makes them succeed again.
func (h *fakeHost) setFail(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail[name] = err
}

func (h *fakeHost) Device(id string) (Known, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[id]
	if d == nil {
		return Known{}, false
	}
	return d.Known, true
}

func (h *fakeHost) DeviceByMAC(mac openflow.MAC) (Known, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if slices.Contains(d.MACs, mac) {
			return d.Known, true
		}
	}
	return Known{}, false
}

func (h *fakeHost) Check(v Visitor) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.check(v)
}

func (h *fakeHost) check(v Visitor) error {
	if h.taken[v.IP] {
		return ErrTaken
	}
	for id, d := range h.devices {
		if id == v.LocalID(h.name) {
			continue
		}
		if d.IP == v.IP || slices.ContainsFunc(v.MACs, func(m openflow.MAC) bool { return slices.Contains(d.MACs, m) }) {
			return fmt.Errorf("%w: %s", ErrTaken, id)
		}
	}
	return nil
}

func (h *fakeHost) Prepare(_ context.Context, v Visit) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call("prepare", v.ID); err != nil {
		return err
	}
	if err := h.check(v.Visitor); err != nil {
		return err
	}
	d := h.devices[v.ID]
	if d == nil {
		d = &fakeDevice{Known: Known{Visitor: v.Visitor, Overlap: overlap}, prepared: true}
		h.devices[v.ID] = d
	}
	if !d.prepared && d.before == nil {
		d.before = slices.Clone(d.places)
		if d.before == nil {
			d.before = []string{}
		}
	}
	if v.Heading.At != nil && !slices.Contains(d.places, edge) {
		d.places = append(slices.Clone(d.places), edge)
	}
	d.via = v.Via
	return nil
}

func (h *fakeHost) Redirect(_ context.Context, id, peer string, alone bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call("redirect", id); err != nil {
		return err
	}
	d := h.devices[id]
	if d == nil {
		return ErrNoDevice
	}
	if alone {
		d.places, d.before, d.Here, d.prepared = []string{peer}, nil, false, false
		return nil
	}
	if d.before == nil {
		d.before = append([]string{}, d.places...)
	}
	if !slices.Contains(d.places, peer) {
		d.places = append(slices.Clone(d.places), peer)
	}
	return nil
}

func (h *fakeHost) Cancel(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call("cancel", id); err != nil {
		return err
	}
	d := h.devices[id]
	switch {
	case d == nil:
	case d.prepared:
		delete(h.devices, id)
	case d.before != nil:
		d.places, d.before = d.before, nil
	}
	return nil
}

func (h *fakeHost) Forget(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call("forget", id); err != nil {
		return err
	}
	d := h.devices[id]
	switch {
	case d == nil:
	case d.Home != h.name:
		delete(h.devices, id)
	default:
		d.places, d.before, d.Here = nil, nil, false
	}
	return nil
}

// sign returns the evidence that a device with the key would send.
func sign(mac openflow.MAC, key string) *Evidence {
	return &Evidence{Src: mac, Message: []byte("key=" + key + " nonce=" + newToken())}
}

func (h *fakeHost) Verify(_ context.Context, id string, e Evidence) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call("verify", id); err != nil {
		return err
	}
	d := h.devices[id]
	text := string(e.Message)
	if d == nil || h.used[text] || !strings.HasPrefix(text, "key="+d.key+" ") {
		return ErrNoEvidence
	}
	h.used[text] = true
	return nil
}

func (h *fakeHost) waiter(mac openflow.MAC) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resumed[mac] == nil {
		h.resumed[mac] = make(chan struct{}, 1)
	}
	return h.resumed[mac]
}

func (h *fakeHost) Resume(mac openflow.MAC) {
	select {
	case h.waiter(mac) <- struct{}{}:
	default:
	}
}

// attach does what the host does after it has answered the device's DHCP.
func (h *fakeHost) attach(id string, p Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[id]
	d.places, d.before, d.Here, d.Place, d.prepared = []string{edge}, nil, true, p, false
}

// snapshot returns all state that an invalid message must not change.
func (h *fakeHost) snapshot() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for id, d := range h.devices {
		lines = append(lines, fmt.Sprintf("%s %v %v here=%v via=%q", id, d.Visitor, d.places, d.Here, d.via))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (h *fakeHost) placesOf(id string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.devices[id]; d != nil {
		return slices.Clone(d.places)
	}
	return nil
}

var (
	errNoAddress = errors.New("the neighbours have no address for it")
	errUndecided = errors.New("nothing was decided")
)

// dhcp is a device that asks for an address until it gets one, or until it is decided that
// none of the neighbours has one for it. Then the error is errNoAddress, and the domain
// gives it an address of its own pools.
func (d *testDomain) dhcp(mac openflow.MAC, e *Evidence, waitLimit time.Duration) (netip.Addr, error) {
	return d.dhcpAt(Heading{At: d.edge()}, mac, e, waitLimit)
}

// dhcpAt is dhcp at a place of its own.
func (d *testDomain) dhcpAt(h Heading, mac openflow.MAC, e *Evidence, waitLimit time.Duration) (netip.Addr, error) {
	h.MAC = mac
	expired := time.After(waitLimit)
	for {
		if d.service().Receiver.Admit(mac, h, e) == Serve {
			k, ok := d.host.DeviceByMAC(mac)
			if !ok {
				return netip.Addr{}, errNoAddress
			}
			id := k.LocalID(d.name)
			d.host.attach(id, h.place())
			d.service().Receiver.Attached(id, e)
			return k.IP, nil
		}
		select {
		case <-d.host.waiter(mac):
		case <-expired:
			return netip.Addr{}, fmt.Errorf("%w within %v", errUndecided, waitLimit)
		}
	}
}
