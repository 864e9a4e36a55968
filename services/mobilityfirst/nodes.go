package mobilityfirst

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

type (
	nodeRegistry = agents.Registry[*nodeapi.Client, control.Nothing, nodeapi.Report]
	node         = agents.Agent[*nodeapi.Client]
	nodeEvent    = control.Event[control.Nothing, nodeapi.Report]
)

const (
	// proofTimeout is how long a node may take to prove its name, and proofInterval the time
	// between two attempts.
	proofTimeout, proofInterval = 5 * time.Second, 5 * time.Second
	// minReportInterval is the time for which further reports of a node are ignored; nodes send one
	// each second.
	minReportInterval = 250 * time.Millisecond
	// maxCustodyRequests limits the API requests that query storage nodes at one time.
	maxCustodyRequests = 4
)

// nodes holds the declared storage nodes, compute nodes and caches, and what they report.
type nodes struct {
	registry     *nodeRegistry
	publish      func(kind string, attrs any)
	log          *slog.Logger
	tasks        *tasks.Group
	custodySlots chan struct{} // one slot for each request that queries storage nodes

	mu     sync.Mutex // taken after all other mutexes, except the registry's
	status map[string]*nodeStatus
	byName map[frame.GUID][]string // the declared names of nodes, by the MobilityFirst name that they have proven
}

// nodeStatus holds what a node has reported.
type nodeStatus struct {
	instance string // identifies the process that sends its events
	// proven is the name whose key the node has proven to hold; it is zero until then.
	proven     frame.GUID
	report     nodeapi.Report // the last valid one; it has no kind before
	problem    string         // the fault in its report, or why it has not proven its name
	full       fullState
	proving    bool      // a proof has been requested
	lastProof  time.Time // when the last proof was requested
	lastReport time.Time // when the last report was accepted
}

func newNodes(o *Options) *nodes {
	n := &nodes{log: o.Log, tasks: tasks.New(), custodySlots: make(chan struct{}, maxCustodyRequests), status: map[string]*nodeStatus{}, byName: map[frame.GUID][]string{}}
	n.publish = func(kind string, attrs any) {
		if o.Bus != nil {
			o.Bus.Publish(Name+".node."+kind, attrs)
		}
	}
	n.registry = agents.New(agents.Options[*nodeapi.Client, control.Nothing, nodeapi.Report]{
		Service: Name, Commands: "sluice mf nodes", Network: o.Network, Store: o.Store, Log: o.Log,
		Publish:     func(kind string, attrs any) { n.publish(strings.TrimPrefix(kind, "agent."), attrs) },
		Certificate: o.NodeTLS != nil, Configured: o.Configured,
		Dial: func(r agents.AgentRecord) (*nodeapi.Client, error) {
			return nodeapi.NewClient(r.URL, o.NodeTLS, o.Dial)
		},
		Event: n.handleEvent, Lost: n.forget,
	})
	return n
}

// run follows the nodes while f runs.
func (n *nodes) run(ctx context.Context, f func(context.Context) error) error {
	return n.registry.While(ctx, func(ctx context.Context) error {
		defer n.tasks.Stop()
		return f(ctx)
	})
}

// handleEvent handles an event of a node. If its report names a name, the node has to prove that it
// holds the name's key, and again after each of its restarts.
func (n *nodes) handleEvent(a *node, e nodeEvent, _ bool) {
	if len(e.Live) == 0 {
		return // an event without a report
	}
	r := e.Live[0]
	wrong := r.Check()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.registry.Get(a.Name) != a {
		return // the node was removed
	}
	t := n.status[a.Name]
	if t == nil {
		t = &nodeStatus{}
		n.status[a.Name] = t
	}
	if time.Since(t.lastReport) < minReportInterval {
		return
	}
	t.lastReport = time.Now()
	if t.instance != e.Instance || wrong != nil || t.proven != r.Name {
		n.clearProof(a.Name, t)
	}
	if t.instance != e.Instance {
		*t = nodeStatus{instance: e.Instance, proving: t.proving, lastProof: t.lastProof, lastReport: t.lastReport} // the rate limits stay
	}
	if wrong != nil {
		t.problem = wrong.Error()
		return
	}
	t.full.update(r.Load())
	t.report = r
	if t.proven == r.Name || t.proving || time.Since(t.lastProof) < proofInterval {
		return
	}
	t.lastProof = time.Now()
	t.proving = n.tasks.Start(func(ctx context.Context) { n.prove(ctx, a, e.Instance) })
}

// prove asks a node to prove that it holds the key of the name in its report.
func (n *nodes) prove(ctx context.Context, a *node, instance string) {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	name, err := a.Client.Prove(ctx)
	if problem := n.recordProof(a, instance, name, err); problem != nil {
		n.log.Warn("a node has not proven its name", "node", a.Name, "error", problem)
	}
}

// recordProof records the result of a node's proof. It returns the problem if there is a new one.
func (n *nodes) recordProof(a *node, instance string, name frame.GUID, err error) (problem error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.status[a.Name]
	if t == nil || n.registry.Get(a.Name) != a {
		return nil // the node was removed
	}
	t.proving = false
	if t.instance != instance {
		return nil // the node was restarted
	}
	if err == nil && name != t.report.Name {
		err = fmt.Errorf("it reports the name %v, but holds the key of %v", t.report.Name, name)
	}
	if err != nil {
		message := "it has not proven its name: " + err.Error()
		if t.problem == message {
			return nil
		}
		t.problem = message
		return err
	}
	t.problem, t.proven = "", name
	n.byName[name] = append(n.byName[name], a.Name)
	return nil
}

// clearProof removes a node from the nodes that have proven a name. n.mu is held.
func (n *nodes) clearProof(from string, t *nodeStatus) {
	rest := slices.DeleteFunc(n.byName[t.proven], func(name string) bool { return name == from })
	if len(rest) == 0 {
		delete(n.byName, t.proven)
	} else {
		n.byName[t.proven] = rest
	}
	t.proven = frame.GUID{}
}

// forget removes the status of a node that was removed. For a node that was replaced, handleEvent
// resets the status.
func (n *nodes) forget(a, _ *node, cause error) {
	if errors.Is(cause, agents.ErrReplaced) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.status[a.Name]; t != nil {
		n.clearProof(a.Name, t)
		delete(n.status, a.Name)
	}
}

// statusOf returns the status of a node, or the zero value if it has not reported yet.
func (n *nodes) statusOf(name string) nodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.status[name]; t != nil {
		return *t
	}
	return nodeStatus{}
}

// fullState holds whether a node is full.
type fullState struct {
	full     bool
	contrary int // how many of the latest reports in a row contradict full
}

// update updates the state with the load of a report.
func (f *fullState) update(load float64) {
	limit := fullThreshold
	if f.full {
		limit = recoveredThreshold
	}
	if load >= limit == f.full {
		f.contrary = 0
		return
	}
	if f.contrary++; f.contrary == fullReports {
		*f = fullState{full: !f.full}
	}
}
