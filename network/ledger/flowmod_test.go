package ledger

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestFlowWriterWritesWhatTheEncoderWrites compares the template with the general encoder.
func TestFlowWriterWritesWhatTheEncoderWrites(t *testing.T) {
	idle := 7 * time.Second
	w := NewFlowWriter(idle)
	rapid.Check(t, func(t *rapid.T) {
		f := rule.Flow{
			InPort: rapid.Uint32().Draw(t, "in"),
			VLAN:   rapid.OneOf(rapid.Uint16Range(0, 4095), rapid.Just(rule.AnyVLAN)).Draw(t, "vlan"),
		}
		copy(f.Src[:], rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "src"))
		copy(f.Dst[:], rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "dst"))
		out := rapid.Uint32Range(1, openflow.PortMax).Draw(t, "out")
		c := rule.Cookie(rapid.Uint64().Draw(t, "cookie"))
		l := rule.OneTable
		if rapid.Bool().Draw(t, "tables") {
			l, _ = rule.NewLayout(0, 3, 7)
		}
		r := FlowToRule(0, f, out, idle)
		m := flowMod(l, &r, openflow.FlowAdd)
		m.Cookie = uint64(c)
		want, err := m.AppendTo(nil, 9)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.AppendAdd(nil, 9, l, c, f, out); !bytes.Equal(got, want) {
			t.Fatalf("flow %+v:\n got %x\nwant %x", f, got, want)
		}
		back, ok := rule.FlowOf(f.Match())
		if !ok || back != f {
			t.Fatalf("the match of %+v reads back as %+v", f, back)
		}
	})
}
