package mobilityfirst

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

const (
	// custodyNodeTimeout is how long one storage node may take to answer, and custodyTimeout how
	// long all of them may take together.
	custodyNodeTimeout, custodyTimeout = 2 * time.Second, 8 * time.Second
)

// CustodyInfo describes the chunks of one sender for one destination in one storage node, as the
// API shows it.
type CustodyInfo struct {
	Node        string    `json:"node"`
	Destination string    `json:"destination" doc:"40 hex digits"`
	Source      string    `json:"source" doc:"Name of the sender, 40 hex digits"`
	Chunks      int       `json:"chunks"`
	Bytes       int64     `json:"bytes"`
	Oldest      time.Time `json:"oldest" doc:"When the first of them was stored"`
	Deadline    time.Time `json:"deadline" doc:"When the first of them expires, as far as the node knows"`
}

// key returns the row's key in the order of the list. A page begins after the key of the last row
// of the page before.
func (c *CustodyInfo) key() string { return c.Node + "/" + c.Destination + "/" + c.Source }

// CustodyList is a page of the list of chunks in custody.
type CustodyList struct {
	Chunks []CustodyInfo `json:"chunks" nullable:"false"`
	// Missing lists the nodes that have not answered.
	Missing []string `json:"missing" nullable:"false" doc:"Storage nodes that have not answered, and why"`
}

type custodyRequest struct {
	For   string `query:"for" pattern:"^[0-9a-f]{40}$" patternDescription:"40 hex digits" doc:"Only chunks for this name"`
	After string `query:"after" pattern:"^(?:[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?/[0-9a-f]{40}/[0-9a-f]{40})?$" patternDescription:"what the link to the next page has: NODE/DESTINATION/SOURCE" doc:"Only rows after this one: NODE/DESTINATION/SOURCE"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of rows"`
}

type custodyAnswer struct {
	Link string `header:"Link" doc:"Address of the next page, if there is one: <?after=NODE/DESTINATION/SOURCE&limit=N>; rel=\"next\" (RFC 8288)"`
	Body CustodyList
}

func (s *Service) registerCustody(to kit.REST) {
	kit.Register(to, http.MethodGet, "custody", "List the chunks in storage nodes, by node, destination and sender; queries the nodes", s.listCustody, http.StatusTooManyRequests)
}

// listCustody asks storage nodes one after the other until the page is full.
func (s *Service) listCustody(ctx context.Context, in *custodyRequest) (*custodyAnswer, error) {
	q := nodeapi.CustodyQuery{}
	var err error
	if in.For != "" {
		if q.For, err = frame.ParseGUID(in.For); err != nil {
			return nil, api.Invalid("query.for", in.For, "a name, 40 hexadecimal digits")
		}
	}
	first, after, err := parseAfter(in.After)
	if err != nil {
		return nil, api.Invalid("query.after", in.After, "what the link to the next page has: NODE/DESTINATION/SOURCE")
	}
	select {
	case s.nodes.custodySlots <- struct{}{}:
		defer func() { <-s.nodes.custodySlots }()
	default:
		return nil, api.TooMany("query", in.After, fmt.Sprintf("%d requests already query storage nodes: try again when one has ended", maxCustodyRequests))
	}
	ctx, cancel := context.WithTimeout(ctx, custodyTimeout)
	defer cancel()
	out := &custodyAnswer{Body: CustodyList{Chunks: []CustodyInfo{}, Missing: []string{}}}
	for _, a := range s.nodes.registry.List() {
		if a.Name < first || !s.nodes.mayStore(a.Name) {
			continue
		}
		q.After, q.Limit = nodeapi.Pair{}, in.Limit-len(out.Body.Chunks)
		if a.Name == first {
			q.After = after
		}
		if q.Limit == 0 || out.addFrom(ctx, a, q) {
			last := &out.Body.Chunks[len(out.Body.Chunks)-1]
			out.Link = nextPageLink(last.key(), in)
			break
		}
	}
	return out, nil
}

// addFrom adds the chunks of a storage node, and reports whether the node has more.
func (c *custodyAnswer) addFrom(ctx context.Context, a *node, q nodeapi.CustodyQuery) (more bool) {
	if st := a.State(); st.Liveness != agents.Up {
		c.Body.Missing = append(c.Body.Missing, fmt.Sprintf("%s: it is %s", a.Name, st.Liveness))
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, custodyNodeTimeout)
	defer cancel()
	page, err := a.Client.Custody(ctx, q)
	if err != nil {
		c.Body.Missing = append(c.Body.Missing, a.Name+": "+nodeapi.Text(err.Error(), maxTextLen))
		return false
	}
	for _, x := range page.Rows {
		c.Body.Chunks = append(c.Body.Chunks, CustodyInfo{a.Name, x.Destination.String(), x.Source.String(), x.Chunks, x.Bytes, x.Oldest.UTC(), x.Deadline.UTC()})
	}
	return page.More
}

// mayStore reports whether a node is a storage node, or its kind is not known yet.
func (n *nodes) mayStore(name string) bool {
	t := n.statusOf(name)
	kind := t.report.Kind()
	return kind == nodeapi.Storage || kind == ""
}

// parseAfter parses the key after which a page begins.
func parseAfter(text string) (node string, p nodeapi.Pair, err error) {
	if text == "" {
		return "", p, nil
	}
	node, pair, _ := strings.Cut(text, "/")
	p, err = nodeapi.ParsePair(pair)
	return node, p, err
}

// nextPageLink returns the Link header of the page after a row.
func nextPageLink(after string, in *custodyRequest) string {
	v := url.Values{"after": {after}, "limit": {fmt.Sprint(in.Limit)}}
	if in.For != "" {
		v.Set("for", in.For)
	}
	return fmt.Sprintf(`<?%s>; rel="next"`, v.Encode())
}
