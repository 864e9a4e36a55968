package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-net/sluice/event"
)

const (
	// heartbeat is the interval at which comments are sent on an idle stream. By them each end
	// detects whether the other is still there.
	heartbeat = 10 * time.Second
	// streamWriteTimeout bounds a write to a consumer that does not read.
	streamWriteTimeout = 10 * time.Second

	kindMissed = "missed"
)

type eventsInput struct {
	LastEventID string   `header:"Last-Event-ID" format:"event-id" doc:"Go on after this event, as browsers do by themselves after a break"`
	After       string   `query:"after" format:"event-id" doc:"Go on after this event; 0 begins with the oldest one that is remembered. Without it, and without Last-Event-ID, the stream begins with what happens next."`
	Kind        []string `query:"kind" maxItems:"16" doc:"Only events whose kind begins with one of these"`
}

// position returns the identifier after which to continue. ok is false if the stream begins with
// the next event.
func (in *eventsInput) position() (id uint64, ok bool, err error) {
	field, text := "query.after", in.After
	if in.LastEventID != "" {
		field, text = "header.Last-Event-ID", in.LastEventID
	}
	if text == "" {
		return 0, false, nil
	}
	id, err = strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, Invalid(field, text, "want an event's identifier, which is a whole number, or 0")
	}
	return id, true, nil
}

func (a *API) registerEvents() {
	op := huma.Operation{
		OperationID: "events", Method: http.MethodGet, Path: Prefix + "/events", Tags: []string{"system"},
		Summary: "Follow what happens",
		Description: "Server-sent events. Each has the identifier, kind and JSON body of an event. Identifiers are contiguous: after n comes n+1. " +
			"Where events are lost to a slow consumer, or by a restart of the controller, the stream says so in an event of kind \"missed\" without an identifier.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The stream",
			Content: map[string]*huma.MediaType{"text/event-stream": {
				Schema: a.huma.OpenAPI().Components.Schemas.Schema(eventType, true, "Event"),
			}},
		}},
	}
	huma.Register(a.huma, op, a.streamEvents)
}

func (a *API) streamEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	if a.opts.Bus == nil {
		return nil, Unavailable("this controller has no event bus")
	}
	after, given, err := in.position()
	if err != nil {
		return nil, err
	}
	if !given {
		after = a.opts.Bus.Last()
	}
	streamed, end := context.WithCancelCause(context.WithoutCancel(ctx))
	place := a.streams.add(streamIdentity(ctx), end)
	if place == nil {
		end(nil)
		return nil, Unavailable("%d consumers follow events already: close one", maxStreams)
	}
	withdrawn := withdrawn(ctx)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer a.streams.remove(place)
		defer end(nil)
		r, w := humago.Unwrap(hc)
		ctx, cancel := context.WithCancel(r.Context())
		control := http.NewResponseController(w)
		var watching sync.WaitGroup
		defer func() {
			cancel()
			watching.Wait()
		}()
		watching.Go(func() {
			select {
			case <-a.stopping:
			case <-withdrawn:
			case <-streamed.Done(): // also ends a write that waits for the consumer
				_ = control.SetWriteDeadline(time.Unix(1, 0))
			case <-ctx.Done():
			}
			cancel()
		})
		if err := limitWriteBuffer(r); err != nil {
			a.opts.Log.Debug("event stream", "to", r.RemoteAddr, "error", err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		s := &stream{w: w, control: control, kinds: in.Kind}
		err := s.run(ctx, a.opts.Bus.Subscribe(after))
		if ctx.Err() == nil {
			a.opts.Log.Debug("event stream ended", "to", r.RemoteAddr, "error", err)
		}
	}}, nil
}

// stream writes events to one consumer.
type stream struct {
	w       io.Writer
	control *http.ResponseController
	kinds   []string
}

// run writes events until the consumer, the bus or ctx ends it, and returns the reason.
func (s *stream) run(ctx context.Context, sub *event.Subscription) error {
	// The first comment sends the header at once.
	if err := s.write(": following\n\n"); err != nil {
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, heartbeat)
		e, err := sub.Next(wait)
		cancel()
		var missed *event.MissedError
		switch {
		case err == nil && s.matches(e.Kind):
			err = s.send(e)
		case errors.As(err, &missed):
			err = s.sendMissed(missed)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			err = s.write(": still here\n\n")
		}
		if err != nil {
			return err
		}
	}
}

func (s *stream) matches(kind string) bool {
	return len(s.kinds) == 0 || slices.ContainsFunc(s.kinds, func(k string) bool { return strings.HasPrefix(kind, k) })
}

func (s *stream) send(e event.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event %d: %w", e.ID, err)
	}
	return s.write(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.ID, oneLine(e.Kind), body))
}

func (s *stream) sendMissed(m *event.MissedError) error {
	body, err := json.Marshal(map[string]any{"kind": kindMissed, "after": m.After, "next": m.Next, "detail": m.Error()})
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", kindMissed, body))
}

func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

func (s *stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.control.Flush()
}
