package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Metrics holds the metrics of one program at one time, by name and labels as they are written:
// `name{label="value"}`.
type Metrics map[string]float64

// Sum returns the sum of a metric over all labels.
func (m Metrics) Sum(name string) (sum float64) {
	for series, value := range m {
		if bare, _, _ := strings.Cut(series, "{"); bare == name {
			sum += value
		}
	}
	return sum
}

// SumOf returns the sum of a metric over all series that have the given labels. labels lists names
// of labels, each followed by its value.
func (m Metrics) SumOf(name string, labels ...string) (sum float64) {
	for series, v := range m {
		if bare, all, _ := strings.Cut(series, "{"); bare == name && hasAll(strings.Split(strings.TrimSuffix(all, "}"), ","), labels) {
			sum += v
		}
	}
	return sum
}

// hasAll reports whether all contains each of the labels with its value.
func hasAll(all, labels []string) bool {
	for pair := range slices.Chunk(labels, 2) {
		if !slices.Contains(all, fmt.Sprintf("%s=%q", pair[0], pair[1])) {
			return false
		}
	}
	return true
}

// Metrics reads the controller's metrics.
func (d *Deployment) Metrics(ctx context.Context) (Metrics, error) {
	token, err := os.ReadFile(d.TokenFile())
	if err != nil {
		return nil, fmt.Errorf("metrics of the controller: %w", err)
	}
	transport := &http.Transport{DialContext: d.lab.Control().DialContext, DisableKeepAlives: true}
	if transport.TLSClientConfig, err = trustController(d); err != nil {
		return nil, fmt.Errorf("metrics of the controller: %w", err)
	}
	m, err := scrape(ctx, transport, d.apiURL()+"/metrics", strings.TrimSpace(string(token)))
	if err != nil {
		return nil, fmt.Errorf("metrics of the controller: %w", err)
	}
	return m, nil
}

// AgentMetrics reads the metrics of a host's agent.
func (d *Deployment) AgentMetrics(ctx context.Context, host string) (Metrics, error) {
	config, err := d.trustAgents()
	if err != nil {
		return nil, fmt.Errorf("metrics of agent %s: %w", host, err)
	}
	transport := &http.Transport{DialContext: d.lab.Control().DialContext, TLSClientConfig: config, DisableKeepAlives: true}
	m, err := scrape(ctx, transport, d.agentURL(host)+"/metrics", "")
	if err != nil {
		return nil, fmt.Errorf("metrics of agent %s: %w", host, err)
	}
	return m, nil
}

// scrape reads metrics in Prometheus's text format.
func scrape(ctx context.Context, transport http.RoundTripper, url, token string) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return parseMetrics(answer.Body)
}

// parseMetrics reads lines of "series value". A series may have blanks in the values of its labels.
// Timestamps are not supported, because Sluice's programs do not write them.
func parseMetrics(text io.Reader) (Metrics, error) {
	m := Metrics{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("metric %q has no value", line)
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		m[line[:at]] = value
	}
	return m, lines.Err()
}
