package predict

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network"
)

// Cell is the area that one attachment point covers.
type Cell struct {
	Name  string
	Place network.PortRef
	Area  Area
}

// Coverage holds the cells of all attachment points. It is immutable.
type Coverage struct{ cells []Cell }

const maxCells = 100000

// NewCoverage checks the cells and returns their coverage. An attachment point has one cell; cells
// may and should overlap.
func NewCoverage(cells []Cell) (*Coverage, error) {
	if len(cells) > maxCells {
		return nil, fmt.Errorf("predict: %d cells: at most %d", len(cells), maxCells)
	}
	c := &Coverage{cells: make([]Cell, 0, len(cells))}
	seen := map[network.PortRef]string{}
	for _, cell := range cells {
		if err := cell.check(); err != nil {
			return nil, fmt.Errorf("predict: cell %q: %w", cell.Name, err)
		}
		if other, twice := seen[cell.Place]; twice {
			return nil, fmt.Errorf("predict: cell %q: place %v is that of cell %q", cell.Name, cell.Place, other)
		}
		seen[cell.Place] = cell.Name
		cell.Area.Polygon = slices.Clone(cell.Area.Polygon)
		c.cells = append(c.cells, cell)
	}
	return c, nil
}

// check returns an error if the cell is not valid.
func (c Cell) check() error {
	if c.Place.IsZero() {
		return errors.New("no place: name the switch and the port")
	}
	return c.Area.check()
}

// Cells returns the cells.
func (c *Coverage) Cells() []Cell { return slices.Clone(c.cells) }

// At returns the places that cover the point.
func (c *Coverage) At(p Point) []network.PortRef {
	var places []network.PortRef
	for _, cell := range c.cells {
		if cell.Area.Contains(p) {
			places = append(places, cell.Place)
		}
	}
	return places
}
