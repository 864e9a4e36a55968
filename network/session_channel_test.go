package network

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

// TestAppendOutputWritesWhatTheEncoderWrites checks that the short encoder writes the same bytes
// as the general one.
func TestAppendOutputWritesWhatTheEncoderWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xid, in, out := rapid.Uint32().Draw(t, "xid"), rapid.Uint32().Draw(t, "in"), rapid.Uint32Range(1, openflow.PortMax).Draw(t, "out")
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		m := openflow.NewPacketOut(in, []openflow.Action{openflow.Output(out)}, data)
		want, err := m.AppendTo(nil, xid)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendOutput(nil, xid, in, out, data); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	})
}
