package handover

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/mobile"
	"github.com/sluice-net/sluice/services/handover/mobile/orders"
)

// TestOrders lets a device's daemon follow the orders of a real controller, by the device's key
// alone. (It needs no switch.)
func TestOrders(t *testing.T) {
	t.Parallel()
	const secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	key, err := hex.DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	server, rest := lonelyController(t)
	put := func(path string, in any) {
		t.Helper()
		if err := rest.Do(t.Context(), http.MethodPut, "/api/v1/handover/"+path, in, nil); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	put("pools/p", handover.PoolSpec{Prefix: "10.8.0.0/24", Gateway: "10.8.0.1"})
	put("devices/car7", handover.DeviceSpec{MACs: []string{"06:00:00:00:00:01", "02:00:00:00:00:01", "02:00:00:00:00:02"}, Pool: "p", Key: secret})
	put("devices/car8", handover.DeviceSpec{MACs: []string{"06:00:00:00:00:08"}, Pool: "p", Key: strings.Repeat("77", 32)})

	source, err := orders.New(orders.Options{Server: server, Device: "car7", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	connected, got, ended := make(chan struct{}), make(chan mobile.Order, 4), make(chan error, 1)
	go func() {
		ended <- source.Follow(ctx, func() { close(connected) }, func(o mobile.Order) { got <- o })
	}()
	select {
	case <-connected:
	case err := <-ended:
		t.Fatal(err)
	}
	move := handover.MoveSpec{MAC: "02:00:00:00:00:02", Hold: "30s", Why: "the cell is full"}
	var given handover.Order
	if err := rest.Do(ctx, http.MethodPost, "/api/v1/handover/devices/car7/move", move, &given); err != nil {
		t.Fatal(err)
	}
	order := <-got
	want := mobile.Order{ID: given.ID, MAC: openflow.MAC{2, 0, 0, 0, 0, 2}, Why: "the cell is full", Hold: 30 * time.Second}
	if order != want {
		t.Errorf("%+v, want %+v", order, want)
	}
	if err := source.Report(ctx, order, mobile.Move{To: "wlan1"}, nil); err != nil {
		t.Error(err)
	}
	if err := source.Report(ctx, order, mobile.Move{}, errors.New("no link")); err != nil {
		t.Error(err)
	}

	// A second daemon replaces the first.
	second, err := orders.New(orders.Options{Server: server, Device: "car7", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	secondCtx, stop := context.WithCancel(ctx)
	secondEnded := make(chan error, 1)
	go func() { secondEnded <- second.Follow(secondCtx, func() {}, func(mobile.Order) {}) }()
	if err := <-ended; !errors.Is(err, orders.ErrReplaced) {
		t.Errorf("the first daemon: %v", err)
	}
	stop()
	if err := <-secondEnded; !errors.Is(err, context.Canceled) {
		t.Errorf("the second daemon: %v", err)
	}

	// Another key, or another device's, is refused.
	for name, o := range map[string]orders.Options{
		"a wrong key":            {Server: server, Device: "car7", Key: []byte(strings.Repeat("x", 32))},
		"another device's key":   {Server: server, Device: "car8", Key: key},
		"a device nobody knows":  {Server: server, Device: "car9", Key: key},
		"a name with odd signs?": {Server: server, Device: "car7/../car8", Key: key},
	} {
		s, err := orders.New(o)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Follow(ctx, func() { t.Errorf("%s: connected", name) }, func(mobile.Order) {})
		if err == nil || !strings.Contains(err.Error(), "40") {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

// lonelyController runs a controller without switches, and returns the URL and an operator's
// client of its API.
func lonelyController(t *testing.T) (string, *client.Client) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "controller.yaml")
	text := fmt.Sprintf("data_dir: %s\nsos: {enabled: false}\nhandover: {enabled: true, borders: [{port: 0000000000000001/1}]}\nstore: {kind: memory}\n", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := services.DefaultConfig()
	if err := config.Load(config.Sources{File: file}, cfg); err != nil {
		t.Fatal(err)
	}
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	ctx, cancel := context.WithCancel(context.Background())
	c, err := controller.New(ctx, controller.Options{Services: services.Definitions(), Config: cfg, Log: slog.New(slog.DiscardHandler), OpenFlow: listeners[:1], API: listeners[1]})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("controller: %v", err)
		}
	})
	server := "http://" + listeners[1].Addr().String()
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	rest, err := client.New(client.Options{Server: server, Token: strings.TrimSpace(string(token))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rest.Close)
	return server, rest
}
