package predict

import (
	"errors"
	"fmt"
	"math"
)

// Geo is a place on earth in degrees.
type Geo struct{ Lat, Lon float64 }

// check returns an error if a Plane cannot represent the place.
func (g Geo) check() error {
	if !(math.Abs(g.Lat) <= maxLatitude) || !(math.Abs(g.Lon) <= 180) {
		return fmt.Errorf("place %v, %v: latitude -%v to %v, longitude -180 to 180 degrees", g.Lat, g.Lon, maxLatitude, maxLatitude)
	}
	return nil
}

const (
	earthRadius = 6371008.8 // metres, mean
	maxLatitude = 85        // nearer to a pole a plane does not represent the earth well
	maxReach    = 200e3     // metres from the origin; a plane does not represent the earth well beyond it
)

// ErrTooFar means that a place is too far from the plane's origin.
var ErrTooFar = errors.New("too far from the origin of the plane")

// Plane is a projection of the earth around an origin. It is exact there, and within 200 km
// accurate enough to predict when something enters a cell.
type Plane struct {
	origin Geo
	shrink float64 // length of a degree of longitude at the origin, relative to the equator
}

// NewPlane returns the plane around the origin.
func NewPlane(origin Geo) (Plane, error) {
	if err := origin.check(); err != nil {
		return Plane{}, fmt.Errorf("predict: origin: %w", err)
	}
	return Plane{origin: origin, shrink: math.Cos(origin.Lat * math.Pi / 180)}, nil
}

// Point returns the point of a place on the plane.
func (p Plane) Point(g Geo) (Point, error) {
	if err := g.check(); err != nil {
		return Point{}, fmt.Errorf("predict: %w", err)
	}
	// The short way round, also across the date line.
	east := math.Remainder(g.Lon-p.origin.Lon, 360)
	q := Point{
		X: east * math.Pi / 180 * earthRadius * p.shrink,
		Y: (g.Lat - p.origin.Lat) * math.Pi / 180 * earthRadius,
	}
	if math.Hypot(q.X, q.Y) > maxReach {
		return Point{}, fmt.Errorf("predict: place %v, %v: %w at %v, %v (%v km)", g.Lat, g.Lon, ErrTooFar, p.origin.Lat, p.origin.Lon, maxReach/1000)
	}
	return q, nil
}
