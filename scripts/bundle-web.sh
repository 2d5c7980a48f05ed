#!/bin/bash
# Makes src/perftest/web/charts.min.js anew from the npm packages that package-lock.json names. Needed only to take a newer
# version of the plotting library; the file is kept in the repository so that a build needs neither npm nor a network.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../src/perftest/web"
npm ci --no-audit --no-fund
version=$(node -p 'require("echarts/package.json").version')
npx esbuild charts.mjs --bundle --minify --format=iife --global-name=charts --legal-comments=inline \
    --banner:js="/* Apache ECharts $version, Apache License 2.0, https://echarts.apache.org */" \
    --outfile=charts.min.js
mkdir -p licenses
cp node_modules/echarts/LICENSE licenses/echarts.LICENSE
cp node_modules/echarts/NOTICE licenses/echarts.NOTICE
cp node_modules/zrender/LICENSE licenses/zrender.LICENSE
cp node_modules/tslib/LICENSE.txt licenses/tslib.LICENSE
rm -rf node_modules
