package interop

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
)

// frames are what a switch has counted of frames of MobilityFirst: of those that go by a label, and of those
// that a class has.
func (w *world) frames(sw string) (byLabel, ofClass int) {
	w.t.Helper()
	out, err := w.lab.Switch(sw).Ofctl(w.t.Context(), "dump-flows")
	w.must(err)
	counted := regexp.MustCompile(`n_packets=(\d+)`)
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "dl_type=0x27c0") || strings.Contains(line, "actions=drop") {
			continue
		}
		n, err := strconv.Atoi(counted.FindStringSubmatch(line)[1])
		w.must(err)
		if strings.Contains(line, "dl_vlan=") {
			byLabel += n
		} else {
			ofClass += n
		}
	}
	return byLabel, ofClass
}

// TestClassAndNames has a class for the frames that go by the label of a path: it has them as long as it is
// there, and chunks arrive all the time.
func TestClassAndNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "pairnames")
	dir, binary := t.TempDir(), selfbuild.Binary(t)
	socket := func(host string) string { return filepath.Join(dir, host+".sock") }
	for _, host := range []string{"client", "server"} {
		d, err := testbed.StartDaemon(t.Context(), w.lab.Host(host), filepath.Join(dir, host+".log"), binary, "mf", "host", "--interface", "eth0", "--socket", socket(host))
		w.must(err)
		t.Cleanup(d.Stop)
	}
	key, err := w.lab.Host("server").Command(t.Context(), binary, "mf", "name", "new", filepath.Join(dir, "key")).Output()
	w.must(err)
	name := strings.TrimSpace(string(key))
	w.must(testbed.Poll(t.Context(), "the host", func() error {
		out, err := w.lab.Host("server").Command(t.Context(), binary, "mf", "ping", "--socket", socket("server"), "--count", "1", "--within", "50ms", name).CombinedOutput()
		if err == nil || strings.Contains(string(out), "no answer") {
			return nil
		}
		return fmt.Errorf("%w: %s", err, out)
	}))
	recv, err := testbed.StartDaemon(t.Context(), w.lab.Host("server"), filepath.Join(dir, "recv.log"), binary, "mf", "recv", "--socket", socket("server"), "--name-key", filepath.Join(dir, "key"), "--discard", "--follow")
	w.must(err)
	t.Cleanup(recv.Stop)
	send := func() {
		t.Helper()
		out, err := w.lab.Host("client").Command(t.Context(), binary, "mf", "perf", "--socket", socket("client"), "--chunk", "100KiB", "--time", "1s", name).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s", out)
	}
	grows := func(what string, of func() int) {
		t.Helper()
		before := of()
		w.must(testbed.PollFor(t.Context(), time.Minute, what, func() error {
			send()
			if n := of() - before; n < 100 {
				return fmt.Errorf("%d frames", n)
			}
			return nil
		}))
	}
	byLabel := func() int { n, _ := w.frames("s1"); return n }
	ofClass := func() int { _, n := w.frames("s1"); return n }
	w.must(testbed.Poll(t.Context(), "the name", func() error {
		var names []struct{ Name string }
		w.must(w.Get(t.Context(), "/api/v1/mobilityfirst/names", &names))
		for _, x := range names {
			if x.Name == name {
				return nil
			}
		}
		return fmt.Errorf("%d others are known", len(names))
	}))
	grows("frames by their label", byLabel)
	w.post(classesPath, classes.ClassSpec{Name: "chunks", Priority: "1", Flows: []match.Flow{{
		EthType: "0x27c0", EthSrc: match.Text(openflow.MAC(w.lab.Host("client").MAC()).String()), EthDst: match.Text(openflow.MAC(w.lab.Host("server").MAC()).String()),
	}}}, nil)
	grows("frames in the class", ofClass)
	w.must(w.Do(t.Context(), http.MethodDelete, classesPath+"/chunks", nil, nil))
	grows("frames by their label again", byLabel)
}
