// SPDX-License-Identifier: Apache-2.0
// Points at a step: a line there, and below the chart the value of each run at its nearest step.
'use strict';
const text = v => Math.abs(v) >= 1e4 && Math.abs(v) < 1e7 ? v.toFixed(0) : String(Number(v.toPrecision(4)));
for (const svg of document.querySelectorAll('figure svg')) {
  const [low, high, from, to] = svg.dataset.x.split(' ').map(Number);
  const here = svg.querySelector('.here'), out = svg.parentElement.querySelector('output');
  let series = null;
  svg.addEventListener('pointermove', event => {
    series ??= [...svg.querySelectorAll('[data-v]')].map(path => {
      const all = path.dataset.v.split(' ').map(Number);
      return {run: path.dataset.run, steps: all.filter((_, k) => k % 2 === 0), values: all.filter((_, k) => k % 2 === 1)};
    });
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    const x = (event.clientX - box.left) / box.width * view.width;
    const step = low + (Math.min(Math.max(x, from), to) - from) / (to - from) * (high - low);
    here.setAttribute('d', `M${from + (step - low) / (high - low) * (to - from)} 10V${view.height - 44}`);
    const words = series.map(one => {
      let k = 0;
      for (let j = 1; j < one.steps.length; ++j)
        if (Math.abs(one.steps[j] - step) < Math.abs(one.steps[k] - step)) k = j;
      return `${one.run} ${text(one.values[k])} (step ${one.steps[k]})`;
    });
    out.textContent = words.join(' · ');
  });
  svg.addEventListener('pointerleave', () => { here.setAttribute('d', ''); out.textContent = ''; });
}
