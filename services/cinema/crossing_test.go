package cinema

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// zaps requests a change of a viewer, beside its old channel, and returns the grant's number.
func (b *harness) zaps(h *fakeEgress, n int, at uint16, channels ...string) uint64 {
	b.t.Helper()
	tells(h, id(n), at, channels...)
	out, err := b.service.changeViewer(b.t.Context(), &gatewayapi.Wanted{Gateway: h.name, Viewer: id(n), Port: at, Channels: channels})
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Number
}

// recordZap records at a gateway that a viewer has changed by a grant.
func recordZap(h *fakeEgress, n int, channel string, grant uint64) {
	h.server.Record(gatewayapi.ViewerEvent{At: time.Now(), Viewer: id(n), What: "changed", Channel: channel, Grant: grant})
}

// TestRecordEndsOldChannel checks that the record of a change ends the viewer's old channel, and
// no other viewer's.
func TestRecordEndsOldChannel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	b.mustWant(b.east, 2, 6001, "a")
	grant := b.zaps(b.east, 1, 6000, "b", "a")
	b.expect("a", 1, "10.0.0.2:6000", "10.0.0.2:6001")
	b.expect("b", 1, "10.0.0.2:6000")
	recordZap(b.east, 1, "b", grant)
	b.awaitCopies("a", "10.0.0.2:6001")
	b.expect("b", 1, "10.0.0.2:6000")
	if kinds := b.events(); !slices.Contains(kinds, "cinema.viewer.changed") {
		t.Errorf("events %v", kinds)
	}
}

// TestRecordEndsItsOwnChangeOnly checks that a record ends nothing if it belongs to an earlier
// change of the viewer, names another channel than the grant, or has no number, as those of
// gateways that request the new channel alone.
func TestRecordEndsItsOwnChangeOnly(t *testing.T) {
	v, now, b := newViewers(), time.Now(), bounds{viewers: 10}
	request := func(channels ...string) uint64 {
		t.Helper()
		all, err := v.request(&gatewayapi.Wanted{Gateway: "east", Viewer: id(1), Port: 6000, Channels: channels}, b, now)
		if err != nil {
			t.Fatal(err)
		}
		return all[0].grant
	}
	ends := func(channel string, grant uint64) []string {
		var gone []string
		for _, x := range v.applyRecords("east", []gatewayapi.ViewerEvent{{Viewer: id(1), What: "changed", Channel: channel, Grant: grant}}) {
			_, removed := x.diff()
			gone = append(gone, removed...)
		}
		return gone
	}
	request("a")
	first := request("b", "a")
	request("a", "b")
	third := request("b", "a")
	for _, wrong := range []struct {
		channel string
		grant   uint64
	}{{"b", first}, {"a", third}, {"b", 0}, {"b", third + 1}} {
		if gone := ends(wrong.channel, wrong.grant); gone != nil {
			t.Errorf("record of %s by grant %d ends %v", wrong.channel, wrong.grant, gone)
		}
	}
	if gone := ends("b", third); !slices.Equal(gone, []string{"a"}) {
		t.Errorf("the record of the last change ends %v", gone)
	}
	if gone := ends("b", third); gone != nil {
		t.Errorf("again it ends %v", gone)
	}
	request()
	if gone := ends("b", third); gone != nil || len(v.list()) > 0 {
		t.Errorf("after the viewer has left it ends %v, viewers %v", gone, v.list())
	}
}

// TestRecordLost checks that a report of what the viewer gets ends its old channel if the record
// does not arrive, as after a restart of the controller, and that the copy of a viewer who shares
// the port stays.
func TestRecordLost(t *testing.T) {
	now, b := time.Now(), bounds{viewers: 10}
	may := func(string) bool { return true }
	told := func(n int, channels ...string) gatewayapi.Viewer {
		return gatewayapi.Viewer{ID: id(n), Port: 6000, Shared: true, Channels: channels}
	}
	for name, restarted := range map[string]bool{"the same controller": false, "another controller": true} {
		v := newViewers()
		if !restarted {
			for n, channels := range [][]string{{"a"}, {"b", "a"}} {
				if _, err := v.request(&gatewayapi.Wanted{Gateway: "east", Viewer: id(n), Port: 6000, Shared: true, Channels: channels}, b, now); err != nil {
					t.Fatal(err)
				}
			}
		}
		v.applyReport("east", "one", []gatewayapi.Viewer{told(0, "a"), told(1, "b", "a")}, b, now.Add(time.Second), may)
		out, _ := v.applyReport("east", "one", []gatewayapi.Viewer{told(0, "a"), told(1, "b")}, b, now.Add(reportGrace), may)
		if len(out) != 1 || !slices.Equal(out[0].after, []string{"b"}) {
			t.Errorf("%s: %+v", name, out)
		}
		if got := v.endpoints("a"); len(got) != 1 {
			t.Errorf("%s: channel a goes to %v", name, got)
		}
	}
}

// TestViewerGoneInMidChange checks that a viewer that leaves between the request and the record
// of a change gets nothing.
func TestViewerGoneInMidChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	b.mustWant(b.east, 2, 6001, "a")
	grant := b.zaps(b.east, 1, 6000, "b", "a")
	b.mustWant(b.east, 1, 6000)
	recordZap(b.east, 1, "b", grant)
	b.awaitCopies("a", "10.0.0.2:6001")
	b.expect("b", 0)
}
