package etcdstore_test

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/etcdstore"
	"github.com/sluice-net/sluice/store/storetest"
)

// cluster starts an etcd server with a listener, as an operator would run it,
// and returns its address.
func cluster(t *testing.T) string {
	t.Helper()
	c := embed.NewConfig()
	c.Dir = t.TempDir()
	c.LogLevel = "panic"
	c.TickMs, c.ElectionMs = 50, 500
	any, err := url.Parse("http://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.ListenPeerUrls, c.ListenClientUrls = nil, []url.URL{*any}
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("the etcd server did not become ready")
	}
	return "http://" + server.Clients[0].Addr().String()
}

func TestExternalConformance(t *testing.T) {
	endpoint := cluster(t)
	var installations atomic.Int64
	storetest.Run(t, func(t *testing.T) store.Store {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := etcdstore.OpenExternal(ctx, etcdstore.ExternalOptions{
			Endpoints: []string{endpoint},
			Prefix:    fmt.Sprintf("/installation-%d", installations.Add(1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
