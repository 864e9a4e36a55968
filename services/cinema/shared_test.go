package cinema

import (
	"testing"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestSharedPort checks that viewers who share a port of their gateway need one copy of a
// channel, until the last of them has left. A viewer who does not share the port takes it from
// all of them.
func TestSharedPort(t *testing.T) {
	b := newBench(t)
	shares := func(n int, channels ...string) {
		t.Helper()
		b.west.set(func(live map[string]gatewayapi.Viewer) {
			if delete(live, id(n)); len(channels) > 0 {
				live[id(n)] = gatewayapi.Viewer{ID: id(n), Port: 6000, Shared: true, Channels: channels, Player: "whep"}
			}
		})
		w := gatewayapi.Wanted{Gateway: b.west.name, Viewer: id(n), Port: 6000, Shared: true, Channels: channels}
		if _, err := b.service.changeViewer(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		shares(n, "a")
	}
	b.expect("a", 1, "10.0.0.3:6000")
	shares(0, "b", "a")
	shares(0, "b")
	b.expect("a", 1, "10.0.0.3:6000")
	b.expect("b", 1, "10.0.0.3:6000")
	for n := 1; n < 4; n++ {
		shares(n)
		b.expect("a", 1, "10.0.0.3:6000")
	}
	if n := len(get[[]ViewerInfo](b, "viewers")); n != 2 {
		t.Errorf("%d viewers, want 2", n)
	}
	shares(4)
	b.expect("a", 0)
	for n := 1; n < 5; n++ {
		shares(n, "a")
	}
	b.mustWant(b.west, 9, 6000, "a")
	if all := get[[]ViewerInfo](b, "viewers"); len(all) != 1 || all[0].ID != id(9) {
		t.Errorf("%+v", all)
	}
	b.expect("a", 1, "10.0.0.3:6000")
	b.expect("b", 0)
}
