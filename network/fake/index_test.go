package fake_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// anyMatch draws a match of some bits of some fields.
func anyMatch(t *rapid.T) openflow.Match {
	fields := []openflow.OXM{openflow.EthType(0x0800), openflow.IPProto(6)}
	some := func(what string) bool { return rapid.Bool().Draw(t, what) }
	if some("by port") {
		fields = append(fields, openflow.InPort(rapid.Uint32Range(1, 3).Draw(t, "in")))
	}
	if some("to a TCP port") {
		fields = append(fields, openflow.TCPDst(rapid.Uint16Range(0, 3).Draw(t, "port")).WithMask(rapid.Uint64Range(0, 3).Draw(t, "bits")))
	}
	if some("tagged") {
		fields = append(fields, openflow.AnyVLAN())
	}
	m, err := openflow.NewMatch(fields...)
	if err != nil { // the value has bits outside its mask
		t.SkipNow()
	}
	return m
}

// TestIndexFindsWhatAScanFinds adds and removes entries at random, and checks that the index
// finds the same entry as a scan: of those with the highest priority, the first one added.
func TestIndexFindsWhatAScanFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := fake.NewFlowTable(nil)
		cookie := uint64(0)
		change := func(command uint8, m openflow.Match, priority uint16) {
			f := openflow.NewFlowMod(command, 0, priority, m)
			cookie++
			f.Cookie = cookie
			if _, e := table.Flow(f); e != nil {
				t.Fatal(e)
			}
		}
		priorities := rapid.Uint16Range(1, 3)
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { change(openflow.FlowAdd, anyMatch(t), priorities.Draw(t, "priority")) },
			"remove": func(t *rapid.T) { change(openflow.FlowDelete, anyMatch(t), 0) },
			"send": func(t *rapid.T) {
				fields := []openflow.OXM{openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(rapid.Uint16Range(0, 3).Draw(t, "port"))}
				if rapid.Bool().Draw(t, "tagged") {
					fields = append(fields, openflow.VLANVID(5))
				}
				in, p := rapid.Uint32Range(1, 3).Draw(t, "in"), fake.NewPacket(fields...)
				var want uint64
				for _, e := range table.Entries() { // by falling priority, then in the order of insertion
					if p.With(openflow.InPort(in)).Matches(e.Match) {
						want = e.Cookie
						break
					}
				}
				got := uint64(0)
				if r := table.Send(in, p); len(r.Entries) > 0 {
					got = r.Entries[0].Cookie
				}
				if got != want {
					t.Fatalf("entry %d handles %v from port %d, want %d of %v", got, p, in, want, table.Entries())
				}
			},
		})
	})
}
