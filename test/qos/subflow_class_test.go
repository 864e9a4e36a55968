package qos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
)

// inClass returns the bytes that a class's queues have sent, by switch.
func (w *deployed) inClass(name string) map[int]uint64 {
	w.t.Helper()
	var s classes.Stats
	if err := w.Get(w.t.Context(), "/api/v1/qos/classes/"+name+"/stats", &s); err != nil {
		w.t.Fatal(err)
	}
	out := map[int]uint64{}
	for _, q := range s.Queues {
		d, err := openflow.ParseDatapathID(q.Switch)
		if err != nil {
			w.t.Fatal(err)
		}
		out[int(d)] += q.Bytes
	}
	return out
}

// joined returns how many subflows connections to host b have.
func (w *deployed) joined() (int, error) {
	out, err := w.lab.Host("b").Command(w.t.Context(), "ss", "-Htn", "state", "established", "sport", "=", fmt.Sprint(":", subflowPort)).Output()
	return strings.Count(string(out), "\n"), err
}

// TestSubflowInClass checks that further subflows of a connection with a class follow the
// first one: in the class's queue, along the class's path, and without the controller.
// Without the class they have paths of their own.
func TestSubflowInClass(t *testing.T) {
	t.Parallel()
	w := deploy(t, threePaths("qjoinsclass"), "subflows: {enabled: true, paths: 3, idle_timeout: 60s}", true)
	w.byKernel()
	const class = "bulk"
	spec := classes.ClassSpec{Name: class, Priority: "0", MinRate: "2000000", Flows: []match.Flow{{
		IPv4Dst: match.Text(w.lab.Host("b").Addr().String()), TCPDst: match.Text(fmt.Sprint(subflowPort)),
	}}}
	if err := w.Do(t.Context(), http.MethodPost, "/api/v1/qos/classes", spec, nil); err != nil {
		t.Fatal(err)
	}
	within(t, testTimeout, "the class to be there", func() error {
		var info classes.Info
		err := w.Get(t.Context(), "/api/v1/qos/classes/"+class, &info)
		if err == nil && info.State != classes.StateActive {
			err = fmt.Errorf("%+v", info)
		}
		return err
	})
	w.during(func() {
		within(t, testTimeout, "a connection of four subflows in the class's queues", func() error {
			joined, err := w.joined()
			by := w.inClass(class)
			if err == nil && (joined != 4 || by[1] < 2<<20 || by[5] < 2<<20) {
				err = fmt.Errorf("%d subflows, bytes by switch: %v", joined, by)
			}
			return err
		})
	})
	middle := 0
	for d, bytes := range w.inClass(class) {
		if d > 1 && d < 5 && bytes > 0 {
			middle++
		}
	}
	if now := w.figures(); middle != 1 || now.subflows != 0 || now.asked != 0 {
		t.Errorf("the class goes by %d ways, and %d subflows were placed, of %d that were asked for", middle, now.subflows, now.asked)
	}
	if err := w.Do(t.Context(), http.MethodDelete, "/api/v1/qos/classes/"+class, nil, nil); err != nil {
		t.Fatal(err)
	}
	w.during(func() {
		within(t, testTimeout, "three subflows with ways of their own", func() error {
			all, err := w.listed()
			if at := middles(all); err == nil && len(slices.Compact(at)) < 2 {
				err = fmt.Errorf("they go by %v", at)
			}
			return err
		})
	})
}

// during calls do while a connection carries as much as it can, all of which has to arrive.
func (j *joins) during(do func()) {
	j.t.Helper()
	over, carried := make(chan struct{}), make(chan error, 1)
	end := sync.OnceFunc(func() { close(over) })
	ctx, cancel := context.WithTimeout(j.t.Context(), 4*carriedTimeout)
	defer cancel()
	go func() {
		carried <- j.carry(ctx, subflowPort, pouring{randomBytes(), over}, true)
	}()
	defer func() {
		end()
		if err := <-carried; err != nil {
			j.t.Errorf("the connection: %v", err)
		}
	}()
	do()
}
