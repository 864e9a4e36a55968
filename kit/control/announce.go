package control

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/tasks"
)

// announceSoon is the time to the next announcement after the controller could not be reached, and
// announceAgain is the time after an answer of the controller.
const (
	announceSoon  = 5 * time.Second
	announceAgain = time.Minute
)

// AgentSpec describes an agent to the controller: an operator gives it to add the agent, or the
// agent announces itself with it.
type AgentSpec struct {
	Name        string   `json:"name" example:"agent-1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$" patternDescription:"1 to 63 lower-case letters, digits, dots and dashes" doc:"Name of the agent: lower-case letters, digits, dots and dashes"`
	URL         string   `json:"url" pattern:"^https?://(?:\\[[0-9A-Fa-f:.]+\\]|[0-9A-Za-z.-]+):[0-9]{1,5}/?$" patternDescription:"a URL like https://192.0.2.7:8440" example:"https://192.0.2.7:8440" doc:"URL of the agent's control API"`
	Addrs       []string `json:"addrs" format:"ip-address" minItems:"1" maxItems:"2" example:"[\"10.0.0.11\"]" doc:"Data addresses of the agent, at most one of each family"`
	MaxSessions int      `json:"max_sessions,omitempty" minimum:"0" maximum:"1000000" doc:"Maximum number of its sessions; 0 leaves the limit to the agent"`
}

// Announce announces an agent of a service to the controller repeatedly until ctx ends.
func Announce(ctx context.Context, c *client.Client, service string, spec AgentSpec, log *slog.Logger) {
	last := ""
	for {
		wait := announceAgain
		err := c.Do(ctx, http.MethodPost, "/api/v1/"+service+"/agents/announce", spec, nil)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != last:
			log.Warn("the controller does not take the agent", "name", spec.Name, "error", err)
			last = err.Error()
		case err == nil && last != "ok":
			log.Info("announced to the controller", "name", spec.Name, "url", spec.URL)
			last = "ok"
		}
		if _, answered := errors.AsType[*client.Problem](err); err != nil && !answered {
			wait = announceSoon
		}
		if tasks.Sleep(ctx, wait) != nil {
			return
		}
	}
}
