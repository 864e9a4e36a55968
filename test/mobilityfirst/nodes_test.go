package mobilityfirst

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/kit/agents"
	controlapi "github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const nodesPath = "/api/v1/mobilityfirst/nodes"

// nodesWorld is a controller with nodes, all of them programs.
type nodesWorld struct {
	*testbed.Deployment
	t   *testing.T
	lab *lab.Lab
	dir string
}

func newNodesWorld(t *testing.T) *nodesWorld {
	top := line("mfnodes")
	for i := range top.Hosts {
		top.Hosts[i].Agent = top.Hosts[i].Name != "a" // they have addresses in the control network
	}
	w := &nodesWorld{t: t, lab: lab.New(t, top), dir: t.TempDir()}
	var err error
	w.Deployment, err = testbed.Deploy(context.WithoutCancel(t.Context()), testbed.Options{
		Lab: w.lab, Binary: selfbuild.Binary(t), LogDir: w.dir, Gateways: map[string]testbed.CinemaRole{"b": testbed.CinemaOwn, "c": testbed.CinemaOwn},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("controller: %s", w.LastWords("controller"))
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// node runs a node that a controller may ask at a port.
func (w *nodesWorld) node(name, at string, port int, args ...string) *testbed.Daemon {
	w.t.Helper()
	files, err := testbed.IssueNode(w.Deployment, at, name, w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	args = append(slices.Concat([]string{"mf"}, args), "--control-listen", fmt.Sprintf("%v:%d", w.lab.ControlAddr(at), port),
		"--control-cert", files.Cert, "--control-key", files.Key, "--control-ca", files.CA)
	return program(w.t, w.lab.Host(at), filepath.Join(w.dir, name+".log"), args...)
}

// declare has the controller ask a node.
func (w *nodesWorld) declare(name, at string, port int) {
	w.t.Helper()
	spec := mobilityfirst.NodeSpec{Name: name, URL: fmt.Sprintf("https://%v:%d", w.lab.ControlAddr(at), port)}
	if err := w.Do(w.t.Context(), http.MethodPost, nodesPath, spec, nil); err != nil {
		w.t.Fatal(err)
	}
}

// is waits until a node is as it should be.
func (w *nodesWorld) is(name, what string, right func(*mobilityfirst.NodeInfo) bool) {
	w.t.Helper()
	err := testbed.PollFor(w.t.Context(), patience, name+" to be "+what, func() error {
		var i mobilityfirst.NodeInfo
		if err := w.Get(w.t.Context(), nodesPath+"/"+name, &i); err != nil || right(&i) {
			return err
		}
		return fmt.Errorf("it is %+v", i)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func proven(i *mobilityfirst.NodeInfo) bool {
	return i.State == agents.Up && i.GUID != "" && len(i.Places) == 1 && i.Error == ""
}

// sluice runs a command of an operator.
func (w *nodesWorld) sluice(args ...string) string {
	w.t.Helper()
	files, url := w.GatewayFiles("b")
	cmd := w.lab.Control().Command(w.t.Context(), selfbuild.Binary(w.t), append(args, "--server", url, "--token-file", w.TokenFile(), "--ca", files.CA)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return string(out)
}

// custody is how many chunks storage nodes have for a name.
func (w *nodesWorld) custody(name frame.GUID) (n int, err error) {
	var l mobilityfirst.CustodyList
	err = w.Get(w.t.Context(), "/api/v1/mobilityfirst/custody?for="+name.String(), &l)
	for _, x := range l.Chunks {
		n += x.Chunks
	}
	if err == nil && len(l.Missing) > 0 {
		err = errors.New(strings.Join(l.Missing, "; "))
	}
	return n, err
}

func (w *nodesWorld) custodyIs(name frame.GUID, want int) {
	w.t.Helper()
	err := testbed.PollFor(w.t.Context(), patience, "custody", func() error {
		n, err := w.custody(name)
		if err == nil && n != want {
			err = fmt.Errorf("%d chunks, want %d", n, want)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// lead has new names at a host ask for a name, and counts the paths to it by the host that they lead to.
func (w *nodesWorld) lead(socket, function string, asking int) (paths map[string]int) {
	w.t.Helper()
	to, err := frame.ParseGUID(function)
	if err != nil {
		w.t.Fatal(err)
	}
	asked := map[string]bool{}
	for range asking {
		c, _ := open(w.t, socket)
		if _, err := c.Ping(to, patience); err != nil {
			w.t.Fatal(err)
		}
		asked[c.Name.String()] = true
	}
	var all []mobilityfirst.PathInfo
	if err := w.Get(w.t.Context(), "/api/v1/mobilityfirst/paths", &all); err != nil {
		w.t.Fatal(err)
	}
	paths = map[string]int{}
	for _, p := range all {
		for i, e := range p.Ends {
			if !asked[p.Ends[1-i].Name] || e.Name != function {
				continue
			}
			for _, host := range []string{"b", "c"} {
				if e.MAC == openflow.MAC(w.lab.Host(host).MAC()).String() {
					paths[host]++
				}
			}
		}
	}
	return paths
}

// A controller knows a storage node and the two nodes of a function: what is kept for a name that is away is listed until it comes,
// a node that drains gets no new paths while it is not the only one, and one that is killed is down, and up again when it
// runs again.
func TestNodes(t *testing.T) {
	begin(t)
	w := newNodesWorld(t)
	keys := map[string]string{}
	names := map[string]string{}
	for _, of := range []string{"depot", "function"} {
		keys[of] = filepath.Join(w.dir, of)
		names[of] = newName(t, keys[of])
	}
	depot, err := frame.ParseGUID(names["depot"])
	if err != nil {
		t.Fatal(err)
	}
	socket := map[string]string{}
	for _, at := range []string{"a", "b", "c"} {
		o := host.Options{Interfaces: []string{"eth0"}, Open: opener(w.lab.Host(at))}
		if at == "a" {
			o.Storage, o.Keep = []frame.GUID{depot}, 5*time.Minute
		}
		socket[at], _ = hosttest.Run(t, o)
	}
	keep := []string{"storage", "--socket", socket["c"], "--name-key", keys["depot"], "--dir", filepath.Join(w.dir, "chunks")}
	storage := w.node("depot", "c", 8442, keep...)
	for _, at := range []string{"b", "c"} {
		w.node("function-"+at, at, 8441, "compute", "--socket", socket[at], "--name-key", keys["function"], "--builtin", "compress")
		w.declare("function-"+at, at, 8441)
	}
	w.declare("depot", "c", 8442)
	for _, name := range []string{"depot", "function-b", "function-c"} {
		w.is(name, "up, with its name proven, in one place", proven)
	}
	if out := w.sluice("mf", "nodes", "list"); strings.Count(out, " up ") != 3 || !strings.Contains(out, names["depot"]) {
		t.Errorf("mf nodes list: %s", out)
	}
	if out := w.sluice("mf", "functions"); strings.Count(out, names["function"]) != 2 || strings.Count(out, "compress") != 2 {
		t.Errorf("mf functions: %s", out)
	}

	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	receiver := record.NameOfOwner(key)
	const chunks = 5
	sender, _ := open(t, socket["a"])
	became := make(chan error, chunks)
	for i := range byte(chunks) {
		if err := sender.Send(t.Context(), receiver, frame.DelayTolerant, []byte{i}, func(err error) { became <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range chunks {
		if err := <-became; err != nil {
			t.Fatal(err)
		}
	}
	w.custodyIs(receiver, chunks)
	var listed mobilityfirst.CustodyList
	if err := json.Unmarshal([]byte(w.sluice("mf", "custody", "--for", receiver.String(), "--json")), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed.Chunks) != 1 || listed.Chunks[0].Source != sender.Name.String() || listed.Chunks[0].Node != "depot" || listed.Chunks[0].Deadline.Before(time.Now()) {
		t.Errorf("mf custody: %+v", listed)
	}

	storage.Kill()
	w.is("depot", "silent", func(i *mobilityfirst.NodeInfo) bool { return i.State == agents.Silent })
	if _, err := w.custody(receiver); err == nil {
		t.Error("nobody says that the storage node is missing")
	}
	w.node("depot-again", "c", 8442, keep...)
	w.is("depot", "up", proven)
	w.custodyIs(receiver, chunks)
	to := hosttest.Open(t, socket["b"], key)
	for i := range byte(chunks) {
		if x := receive(t, to); len(x.Payload) != 1 || x.Payload[0] != i || x.From != sender.Name {
			t.Errorf("chunk %d is %v of %v", i, x.Payload, x.From)
		}
	}
	w.custodyIs(receiver, 0)

	drain := func(on bool) {
		t.Helper()
		if err := w.Do(t.Context(), http.MethodPost, nodesPath+"/function-c/drain", controlapi.DrainRequest{On: on}, nil); err != nil {
			t.Fatal(err)
		}
	}
	drain(true) // it is the nearer
	if paths := w.lead(socket["a"], names["function"], 6); paths["c"] != 0 || paths["b"] != 6 {
		t.Errorf("while c drains there are paths to %v", paths)
	}
	drain(false)
	if paths := w.lead(socket["a"], names["function"], 6); paths["c"] == 0 {
		t.Errorf("when c does not drain there are paths to %v", paths)
	}
}
