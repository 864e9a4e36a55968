package tables

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	packetsPerPair  = 100_000
	packetsPerWorld = 1000
)

// who has services draw their declarations into a world, and which kinds of claims are theirs.
// Default forwarding is always there.
var who = []struct {
	name string
	draw func(*world, *rapid.T)
	has  []kind
}{
	{"names", (*world).drawNames, []kind{byLabel, noLabel}},
	{"channel", (*world).drawChannel, []kind{channeled, unannounced}},
	{"sos", func(w *world, t *rapid.T) { w.drawSOS(t, client, server, phone, phone) }, []kind{session, firstPacket, stray, agents}},
	{"class", (*world).drawClasses, []kind{classified}},
	{"critical", (*world).drawCritical, []kind{placed, criticalPacket}},
	{"device", (*world).drawDevice, []kind{device, elsewhere, control}},
	{"subflow", (*world).drawSubflows, []kind{joined, joining}},
	{"forwarding", func(*world, *rapid.T) {}, []kind{ordinary, probe}},
}

// pair are two services.
type pair struct {
	name string
	a, b int // in who
}

func pairs() (all []pair) {
	for a := range who {
		for b := a + 1; b < len(who); b++ {
			all = append(all, pair{who[a].name + " and " + who[b].name, a, b})
		}
	}
	return all
}

// draw draws a world in which both have declared something. A mistake, if there is one, changes
// what reaches its switches.
func (p pair) draw(t *rapid.T, mistake func(*openflow.FlowMod)) *world {
	w := drawWorld(t, mistake)
	w.drawForwarding(t)
	who[p.a].draw(w, t)
	who[p.b].draw(w, t)
	return w
}

// sendMany sends packets and says what is wrong with the first with which something is.
func (w *world) sendMany(seed uint64, made decided) error {
	r := newTraffic(w, seed)
	for range packetsPerWorld {
		if err := w.follow(r.next()).check(made); err != nil {
			return err
		}
	}
	return nil
}

// TestPairs sends packets through the tables of worlds in which two services have declared
// something. Each decision between the two has to be made, but under -short, which draws only a
// fifth of the worlds.
func TestPairs(t *testing.T) {
	for _, p := range pairs() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			sent, in := 0, map[decision]*[2]int{}
			rapid.Check(t, func(t *rapid.T) {
				w, made := p.draw(t, nil), decided{}
				if err := w.sendMany(rapid.Uint64().Draw(t, "seed of the packets"), made); err != nil {
					t.Fatalf("%v\n%v", err, w)
				}
				sent += packetsPerWorld
				made.count(in)
			})
			if t.Failed() || testing.Short() {
				return
			}
			if sent < packetsPerPair {
				t.Errorf("%d packets were sent, want %d", sent, packetsPerPair)
			}
			want(t, in, who[p.a].has, who[p.b].has)
		})
	}
}

// decided are the decisions that were made in a world: on switches with one table, and with
// several.
type decided map[decision]*[2]bool

func (made decided) note(d decision, tables bool) {
	if made[d] == nil {
		made[d] = new([2]bool)
	}
	if tables {
		made[d][1] = true
	} else {
		made[d][0] = true
	}
}

// count counts the worlds in which each was made.
func (made decided) count(in map[decision]*[2]int) {
	for d, of := range made {
		if in[d] == nil {
			in[d] = new([2]int)
		}
		for i, is := range of {
			if is {
				in[d][i]++
			}
		}
	}
}

// want fails for decisions between two services that were never made.
func want(t *testing.T, in map[decision]*[2]int, a, b []kind) {
	all := ""
	for _, d := range decisions {
		if !slices.Contains(a, d.first) && !slices.Contains(b, d.first) || !slices.Contains(a, d.second) && !slices.Contains(b, d.second) {
			continue
		}
		n := in[d]
		if n == nil || n[0] == 0 || n[1] == 0 {
			t.Errorf("decision %v before %v was made in %v worlds, on switches with one table and with several", d.first, d.second, n)
			continue
		}
		all += fmt.Sprintf("\n%v before %v: in %d worlds on switches with one table, in %d with several", d.first, d.second, n[0], n[1])
	}
	t.Log(all)
}
