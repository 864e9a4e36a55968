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
	// proveWithin is how long a node may take to prove its name, proveAgain how soon one is asked again that has not.
	proveWithin, proveAgain = 5 * time.Second, 5 * time.Second
	// hearEvery is how soon after a report the next is taken: nodes tell one each second.
	hearEvery = 250 * time.Millisecond
	// maxCustody is how many requests have storage nodes asked what they keep at one time.
	maxCustody = 4
)

// nodes are the storage nodes, compute nodes and caches that are declared, and what they tell.
type nodes struct {
	registry *nodeRegistry
	publish  func(kind string, attrs any)
	log      *slog.Logger
	tasks    *tasks.Group
	custody  chan struct{} // places of requests that ask storage nodes

	mu   sync.Mutex // a leaf, but for the registry's
	told map[string]*told
	by   map[frame.GUID][]string // the nodes that have proven a name
}

// told is what a node has told.
type told struct {
	instance string // of its events
	// proven is the name that it has the key of, the zero value until that is known.
	proven  frame.GUID
	report  nodeapi.Report // the last that can be; it has no kind before
	trouble string         // what is wrong with what it tells
	full    fullness
	asking  bool      // for the proof
	asked   time.Time // when last
	heard   time.Time // when a report was taken last
}

func newNodes(o *Options) *nodes {
	n := &nodes{log: o.Log, tasks: tasks.New(), custody: make(chan struct{}, maxCustody), told: map[string]*told{}, by: map[frame.GUID][]string{}}
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
		Event: n.hear, Lost: n.lose,
	})
	return n
}

// while follows the nodes while f runs.
func (n *nodes) while(ctx context.Context, f func(context.Context) error) error {
	return n.registry.While(ctx, func(ctx context.Context) error {
		defer n.tasks.Stop()
		return f(ctx)
	})
}

// hear takes what a node tells. Of one that says that it has a name a proof is wanted, and again after each of its starts.
func (n *nodes) hear(a *node, e nodeEvent, _ bool) {
	if len(e.Live) == 0 {
		return // an event about what has happened alone
	}
	r := e.Live[0]
	wrong := r.Check()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.registry.Get(a.Name) != a {
		return // it was removed
	}
	t := n.told[a.Name]
	if t == nil {
		t = &told{}
		n.told[a.Name] = t
	}
	if time.Since(t.heard) < hearEvery {
		return
	}
	t.heard = time.Now()
	if t.instance != e.Instance || wrong != nil || t.proven != r.Name {
		n.unprove(a.Name, t)
	}
	if t.instance != e.Instance {
		*t = told{instance: e.Instance, asking: t.asking, asked: t.asked, heard: t.heard} // what bounds it goes on
	}
	if wrong != nil {
		t.trouble = wrong.Error()
		return
	}
	t.full.hear(r.Load())
	t.report = r
	if t.proven == r.Name || t.asking || time.Since(t.asked) < proveAgain {
		return
	}
	t.asked = time.Now()
	t.asking = n.tasks.Start(func(ctx context.Context) { n.prove(ctx, a, e.Instance) })
}

// prove has a node prove that it has the name that it tells.
func (n *nodes) prove(ctx context.Context, a *node, instance string) {
	ctx, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	name, err := a.Client.Prove(ctx)
	if trouble := n.proved(a, instance, name, err); trouble != nil {
		n.log.Warn("a node does not count for its name", "node", a.Name, "error", trouble)
	}
}

// proved notes what has become of a node's proof, and says what is wrong with it if that is news.
func (n *nodes) proved(a *node, instance string, name frame.GUID, err error) (trouble error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.told[a.Name]
	if t == nil || n.registry.Get(a.Name) != a {
		return nil // it was removed
	}
	t.asking = false
	if t.instance != instance {
		return nil // it was started again
	}
	if err == nil && name != t.report.Name {
		err = fmt.Errorf("it tells of name %v, and has the key of %v", t.report.Name, name)
	}
	if err != nil {
		said := "it has not proven its name: " + err.Error()
		if t.trouble == said {
			return nil
		}
		t.trouble = said
		return err
	}
	t.trouble, t.proven = "", name
	n.by[name] = append(n.by[name], a.Name)
	return nil
}

// unprove ends that a node counts for a name. n.mu is held.
func (n *nodes) unprove(of string, t *told) {
	rest := slices.DeleteFunc(n.by[t.proven], func(name string) bool { return name == of })
	if len(rest) == 0 {
		delete(n.by, t.proven)
	} else {
		n.by[t.proven] = rest
	}
	t.proven = frame.GUID{}
}

// lose forgets what a node has told that was removed. What one tells that was started again its events say.
func (n *nodes) lose(a, _ *node, cause error) {
	if errors.Is(cause, agents.ErrReplaced) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.told[a.Name]; t != nil {
		n.unprove(a.Name, t)
		delete(n.told, a.Name)
	}
}

// of is what a node has told; the zero value for nothing.
func (n *nodes) of(name string) told {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.told[name]; t != nil {
		return *t
	}
	return told{}
}
