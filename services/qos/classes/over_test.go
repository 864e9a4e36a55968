package classes

import (
	"testing"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// critical is a flow that others have been promised 8 Mbit/s for.
type critical struct{ gaveWay string }

var criticalKey = reserve.Key{Owner: "critical", ID: "flow"}

func (c *critical) Within(m []openflow.Match) []reserve.Key {
	if len(m) > 0 && c.gaveWay == "" {
		return []reserve.Key{criticalKey}
	}
	return nil
}

func (c *critical) GiveWay(_ []openflow.Match, to string) { c.gaveWay = to }

// What a critical flow is promised does not stand against the class that carries it, and
// is given up when the class has it.
func TestClassOverCriticalFlow(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.Book.Restore(reserve.Promise{Key: criticalKey, Shares: []reserve.Share{{Link: portRef(1, 2), Rate: 8e6}}})
	class := request(t, "over", 7000)
	class.MinRate = 8e6
	if _, err := x.Add(t.Context(), class); err == nil {
		t.Fatal("16 Mbit/s were promised on 10")
	}
	c := &critical{}
	x.plan.Critical, x.placer.Critical = c, c
	if _, err := x.Add(t.Context(), class); err != nil || c.gaveWay != "the class over" {
		t.Errorf("%v, gave way to %q", err, c.gaveWay)
	}
}
