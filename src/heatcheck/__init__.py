"""Do your heatmaps tell the truth?"""
