"""Speed, as ratios taken in one run: `fedforget bench`, or, on a bare machine, `python -m fedforget.experiments bench`.

Never a test: a figure is the median of repetitions taken in turns with what it is compared with, on the machine at
hand. Results go into one JSON file for each device, part by part; `page.py` renders docs/performance.md from them."""
