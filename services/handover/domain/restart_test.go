package domain

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
)

func TestRestart(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	// The receiver is restarted before the device has come: it drops the move, and the origin
	// learns of it.
	b.shut()
	b.start()
	settles(t, ds, a, id, "a")
	if _, known := b.host.Device(id + "@a"); known {
		t.Error("the restarted receiver still knows the visitor")
	}
	// The origin is restarted between the branch and the completion.
	announce(t, a, b, id)
	a.shut()
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	a.start()
	settles(t, ds, a, id, "b")
	// Both are restarted while it is abroad; then it comes home.
	for _, d := range ds {
		d.shut()
		d.start()
	}
	chainIs(t, ds, a, id, "a", "b")
	if up, ok := b.service().Upstream(id + "@a"); !ok || up != "a" {
		t.Errorf("upstream after a restart: %q, %v", up, ok)
	}
	move(t, ds, a, b, a, id)
	chainIs(t, ds, a, id, "a")
}

// A neighbour's message during a start is handled after the devices have been read: a premature
// answer that a move is unknown would end the move.
func TestMessagesBeforeRestore(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	a.shut()
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	said := make(chan struct{}, 1)
	a.setFate(func(kind Kind, _ string) fate {
		if kind == KindComplete {
			select {
			case said <- struct{}{}:
			default:
			}
		}
		return goesThrough
	})
	a.start(func() {
		<-said
		pause.For(50*time.Millisecond, "an answer would be there by then")
	})
	settles(t, ds, a, id, "b")
	if b.sawEvent("orphaned") {
		t.Error("the device was given up")
	}
}

// A device's arrival was not written before the controller was killed.
func TestRestartJustAfterAttaching(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	_, id := a.device(1, func(d *fakeDevice) { d.Signed = false })
	announce(t, a, b, id)
	b.shut()
	b.host.attach(id+"@a", at(b).place())
	b.start()
	settles(t, ds, a, id, "b")
}
