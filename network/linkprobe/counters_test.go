package linkprobe

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network/packet"
)

// TestCounted checks what the counters of switches show: which of them do not change, whether
// switches pass fewer frames to the controller than they should, and where frames are lost; or
// nothing, if that cannot be decided.
func TestCounted(t *testing.T) {
	is := func(n int) *uint64 { v := uint64(n); return &v }
	noARP := only(func(_ []byte, h packet.Headers) bool { return h.EthType == packet.TypeLLDP })
	for name, tt := range map[string]struct {
		there   line
		counted func(sent, came int) Counters
		want    string // the faults, and part of the text of one of them
		says    string
	}{
		"right":                  {sound, func(s, c int) Counters { return Counters{is(s), is(s), is(c)} }, "", ""},
		"beside other packets":   {sound, func(s, c int) Counters { return Counters{is(9 * s), is(9 * s), is(c)} }, "", ""},
		"not told":               {sound, func(int, int) Counters { return Counters{} }, "", ""},
		"nothing left":           {sound, func(s, c int) Counters { return Counters{is(0), is(s), is(c)} }, "uncounted", near.String() + ", which has counted none"},
		"nothing came":           {sound, func(s, c int) Counters { return Counters{is(s), is(0), is(c)} }, "uncounted", far.String() + ", which has counted none"},
		"rule of none":           {sound, func(s, _ int) Counters { return Counters{is(s), is(s), is(0)} }, "uncounted", "by a rule of switch"},
		"not handed in":          {noARP, func(s, _ int) Counters { return Counters{is(s), is(s), is(s)} }, "kinds punts-lost", "to hand in, of which 1 came"},
		"seen twice":             {sound, func(s, c int) Counters { return Counters{is(s), is(2 * s), is(2 * c)} }, "", ""},
		"kept by the sender":     {noARP, func(_, c int) Counters { return Counters{is(c), is(c), is(c)} }, "kinds", "the sending switch keeps them"},
		"lost in between":        {noARP, func(s, c int) Counters { return Counters{is(s), is(c), is(c)} }, "kinds", "lost in between"},
		"lost before the rules":  {noARP, func(s, c int) Counters { return Counters{is(s), is(s), is(c)} }, "kinds", "come before its rules"},
		"beside too many others": {noARP, func(s, c int) Counters { return Counters{is(50 * s), is(49 * s), is(c)} }, "kinds", "while other kinds do"},
		"all lost in between":    {silent, func(s, _ int) Counters { return Counters{is(s), is(0), is(0)} }, "one-way", "lost in between"},
	} {
		t.Run(name, func(t *testing.T) {
			there, back := NewDirection(near, far, DefaultMTU), NewDirection(far, near, DefaultMTU)
			carry(there, tt.there)
			carry(back, sound)
			there.Counted(tt.counted(there.Sent(), there.arrivedFrames))
			var faults []string
			said := tt.says == ""
			for _, f := range Judge(there, back) {
				faults = append(faults, string(f.Fault))
				said = said || strings.Contains(f.Found, tt.says)
			}
			if got := strings.Join(faults, " "); got != tt.want || !said {
				t.Errorf("found %q, want %q that says %q: %s", got, tt.want, tt.says, Judge(there, back))
			}
		})
	}
}
