package route

import (
	"fmt"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// entry is one rule in the form that waves are searched by.
type entry struct {
	sw openflow.DatapathID
}

// Make plans how a device is served. The topology must be the one its rules are
// to be written for. Where a bicast is not possible the plan serves the first
// place alone and says why in Fallback.
func Make(t *network.Topology, w Want) (Plan, error) {
	if len(w.Places) == 0 || len(w.Places) > 2 {
		return Plan{}, fmt.Errorf("%w: %d places, not 1 or 2", ErrInvalid, len(w.Places))
	}
	return Plan{}, fmt.Errorf("%w: %v", ErrUnreachable, w.Places[0].At)
}

// Waves is the consistent order in which the switches of a change are written:
// all switches of a wave at once, the next wave when all have confirmed. What is
// deleted is deleted after the last wave. An empty old plan is a first attachment.
func Waves(old, now Plan) [][]openflow.DatapathID { return nil }

// Burst is the fastest order that lets no packet go round in a circle: packets may
// be lost until all switches have their rules, as if the device had left its old
// place already. Mostly it is a single wave.
func Burst(old, now Plan) [][]openflow.DatapathID { return nil }

// Steps are the changes that lead from one plan to another, in order. From a
// bicast to its second place they are two: the join stops serving the first place,
// which is one rule of one switch, and then the rules take their final form.
func Steps(old, now Plan) []Step { return nil }

// Compare tells what a change touches.
func Compare(old, now Plan) Change { return Change{} }
